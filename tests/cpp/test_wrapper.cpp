// minimind.hpp: exceptions, ownership, text, training and generating.
#include "minimind.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace {

int cases, failed;

void require(bool condition, const char *what)
{
    if (!condition)
        throw std::runtime_error(std::string("not so: ") + what);
}
#define REQUIRE(condition) require(condition, #condition)

void test(const char *sentence, void (*function)())
{
    std::string problem;
    try {
        function();
    } catch (const std::exception &error) {
        problem = error.what();
    }
    failed += !problem.empty();
    std::printf("%s %d - %s\n", problem.empty() ? "ok" : "not ok", ++cases, sentence);
    if (!problem.empty())
        std::printf("# %s\n", problem.c_str());
}

minimind::model tiny_model()
{
    minimind::config config("minimind2-small");
    config.set("vocab_size", 259).set("hidden_size", 32).set("num_hidden_layers", 2).set("num_attention_heads", 4);
    config.set("num_key_value_heads", 2).set("max_position_embeddings", 64);
    return minimind::model(config, 1);
}

minimind::context tiny_context(const minimind::model &model)
{
    auto options = minimind::make<mm_context_options>();
    options.max_length = 32;
    options.threads = 1;
    return minimind::context(model, options);
}

minimind::tokenizer byte_tokenizer() { return minimind::tokenizer::train({ "a" }, 259); }

struct directory {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("minimind-cpp-" + std::to_string(std::rand()));
    directory() { std::filesystem::create_directories(path); }
    ~directory() { std::filesystem::remove_all(path); }
};

void failures_throw()
{
    try {
        minimind::config("no-such-preset");
    } catch (const minimind::error &error) {
        REQUIRE(error.status() == MM_ERR_ARG);
        REQUIRE(std::string(error.what()).find("no-such-preset") != std::string::npos);
        return;
    }
    REQUIRE(!"thrown");
}

void fields_keep_their_types()
{
    minimind::config config;
    config.set("use_moe", true).set("rope_theta", 5e4).set("hidden_act", "gelu").set("hidden_size", 128);
    minimind::config copy = config.copy();
    REQUIRE(copy.get_bool("use_moe") && copy.get_float("rope_theta") == 5e4 && copy.get_int("hidden_size") == 128);
    REQUIRE(copy.get_string("hidden_act") == "gelu");
}

void handles_are_only_moved()
{
    static_assert(!std::is_copy_constructible_v<minimind::model> && !std::is_copy_assignable_v<minimind::trainer>);
    static_assert(std::is_nothrow_move_constructible_v<minimind::model> &&
                  std::is_nothrow_move_constructible_v<minimind::context>);
    minimind::model first = tiny_model();
    mm_model *handle = first.get();
    minimind::model second = std::move(first);
    REQUIRE(second.get() == handle && first.get() == nullptr);
}

void a_context_outlives_its_model()
{
    auto context = std::make_unique<minimind::context>(tiny_context(tiny_model()));
    REQUIRE(context->generate({ 65 }).size() > 0);
}

void text_comes_back()
{
    auto tokenizer = byte_tokenizer();
    for (std::string text : { std::string(), std::string("Grüße 世界"), std::string("a\0b", 3) })
        REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
    std::string pieces;
    minimind::decoder decoder(tokenizer);
    for (std::int32_t id : tokenizer.encode("ü!"))
        pieces += decoder.push(id);
    REQUIRE(pieces + std::string(decoder.flush()) == "ü!");
    auto options = minimind::make<mm_chat_options>();
    options.template_name = "minimind3";
    minimind::chat chat;
    chat.add("user", "hi");
    REQUIRE(tokenizer.decode(chat.encode(tokenizer, options), false) == chat.format(tokenizer, options));
}

void callbacks_may_throw()
{
    auto model = tiny_model();
    auto context = tiny_context(model);
    minimind::generation how;
    how.stops = false;
    int seen = 0;
    how.on_token = [&](std::int32_t, float) { return ++seen == 3; };
    REQUIRE(context.generate({ 65 }, how).size() == 3);
    how.on_token = [](std::int32_t, float) -> bool { throw std::out_of_range("from the callback"); };
    try {
        context.generate({ 65 }, how);
    } catch (const std::out_of_range &) {
        return;
    }
    REQUIRE(!"thrown");
}

void a_cache_goes_on()
{
    auto model = tiny_model();
    auto context = tiny_context(model);
    minimind::cache cache(model, 1, 32);
    minimind::generation how;
    how.stops = false;
    how.max_new_tokens = 4;
    how.cache = &cache;
    context.generate({ 65, 66 }, how);
    REQUIRE(cache.length() == 5);
    minimind::cache chats(model, 2, 16);
    chats.fork(cache, 0, 1, 3);
    REQUIRE(chats.length(0) == 0 && chats.length(1) == 3);
    directory scratch;
    cache.save((scratch.path / "cache").string());
    REQUIRE(minimind::cache::load(model, (scratch.path / "cache").string()).length() == 5);
    cache.truncate(2);
    REQUIRE(cache.length() == 2);
}

void a_trainer_lowers_the_loss()
{
    directory place;
    std::string file = (place.path / "rows.jsonl").string();
    std::ofstream out(file);
    for (int i = 0; i < 24; i++)
        out << "{\"text\": \"the cat sat on mat number " << i << "\"}\n";
    out.close();
    auto model = tiny_model();
    auto tokenizer = byte_tokenizer();
    auto rows = minimind::make<mm_loader_options>();
    rows.batch = 4;
    rows.max_length = 32;
    minimind::loader loader(minimind::dataset(file), tokenizer, rows);
    auto options = minimind::make<mm_trainer_options>();
    options.learning_rate = 5e-3;
    options.accumulation_steps = 1;
    options.epochs = 4;
    options.threads = 1;
    std::vector<double> losses;
    minimind::trainer made(model, loader, &tokenizer, options, [&](const mm_train_progress &progress) {
        losses.push_back(progress.loss);
        return false;
    });
    minimind::trainer trainer = std::move(made);
    trainer.run();
    REQUIRE(losses.size() == 24 && losses.back() < 0.7 * losses.front() && trainer.progress().step == 24);
}

void a_directory_brings_it_back()
{
    directory place;
    auto model = tiny_model();
    model.save(place.path.string());
    byte_tokenizer().save(place.path.string());
    auto again = minimind::model::load(place.path.string());
    REQUIRE(again.tensor_count() == model.tensor_count());
    mm_view one = model.find("model.norm.weight"), other = again.find("model.norm.weight");
    REQUIRE(one.shape[0] == other.shape[0] && one.data != other.data);
    REQUIRE(minimind::tokenizer::load(place.path.string()).vocab_size() == 259);
}

void nothing_is_left()
{
    mm_memory_usage usage = MM_MEMORY_USAGE_INIT;
    minimind::check(mm_memory_get_usage(&usage));
    REQUIRE(usage.current == 0);
}

} // namespace

int main()
{
    test("failures throw the library's status and message", failures_throw);
    test("fields keep their types", fields_keep_their_types);
    test("handles are moved and never copied", handles_are_only_moved);
    test("a context outlives its model", a_context_outlives_its_model);
    test("text comes back from ids, whole and piece by piece", text_comes_back);
    test("callbacks may end a sequence or throw", callbacks_may_throw);
    test("a cache goes on where it stood", a_cache_goes_on);
    test("a trainer that was moved lowers the loss", a_trainer_lowers_the_loss);
    test("a directory brings model and tokenizer back", a_directory_brings_it_back);
    test("handles leave no memory behind", nothing_is_left);
    std::printf("1..%d\n", cases);
    return failed != 0;
}
