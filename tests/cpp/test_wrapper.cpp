// minimind.hpp: exceptions, ownership, text, training and generating.
#include "minimind.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

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

// The status that a call throws; MM_OK if it throws nothing.
template <typename Call> mm_status refused(Call call)
{
    try {
        call();
    } catch (const minimind::error &error) {
        return error.status();
    }
    return MM_OK;
}

// What a call throws of a callback's; empty if it throws nothing.
template <typename Call> std::string raised(Call call)
{
    try {
        call();
    } catch (const std::out_of_range &error) {
        return error.what();
    }
    return "";
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

// Of this process alone, whatever else runs.
struct directory {
    std::filesystem::path path;
    directory()
    {
        std::string name = (std::filesystem::temp_directory_path() / "minimind-cpp-XXXXXX").string();
        require(mkdtemp(name.data()) != nullptr, "a directory");
        path = name;
    }
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
    minimind::chat chat({});
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
    REQUIRE(raised([&] { context.generate({ 65 }, how); }) == "from the callback");
    how.on_token = nullptr;
    how.on_logits = [](const std::int32_t *ids, std::int32_t count, float *logits, std::int32_t vocab_size) {
        const std::int32_t wanted = 40 + count;
        REQUIRE(count == 0 || ids[count - 1] == wanted - 1);
        for (std::int32_t i = 0; i < vocab_size; i++)
            logits[i] = i == wanted ? 0 : -std::numeric_limits<float>::infinity();
        return count == 3;
    };
    REQUIRE(context.generate({ 65 }, how) == (std::vector<std::int32_t>{ 40, 41, 42 }));
    how.on_logits = [](const std::int32_t *, std::int32_t, float *, std::int32_t) -> bool { throw std::out_of_range("logits"); };
    REQUIRE(raised([&] { context.generate({ 65 }, how); }) == "logits");
}

void what_is_raised_comes_first()
{
    auto model = tiny_model();
    auto context = tiny_context(model);
    minimind::cache cache(model, 1, 32);
    minimind::generation how;
    how.stops = false;
    how.cache = &cache;
    how.on_token = [&](std::int32_t, float) -> bool {
        context.cancel();
        throw std::out_of_range("as it was cancelled");
    };
    REQUIRE(raised([&] { context.generate({ 65 }, how); }) == "as it was cancelled" && cache.length() == 0);
    how.on_token = [](std::int32_t, float) -> bool { throw std::out_of_range("alone"); };
    REQUIRE(raised([&] { context.generate({ 65 }, how); }) == "alone" && cache.length() == 0);
    how.on_token = nullptr;
    how.max_new_tokens = 3;
    REQUIRE(context.generate({ 65 }, how).size() == 3 && cache.length() == 3);
}

void a_continuation_has_its_details()
{
    auto model = tiny_model();
    auto context = tiny_context(model);
    minimind::generation how;
    how.sampling.temperature = 0;
    how.max_new_tokens = 4;
    how.stops = false;
    minimind::generated all = context.complete({ 65 }, how);
    REQUIRE(all.ids.size() == 4 && all.logprobs.size() == 4 && all.logprobs[0] < 0);
    REQUIRE(all.finish == MM_FINISH_LENGTH && all.stop == -1 && all.ids == context.generate({ 65 }, how));
    how.stops = true;
    how.stop_ids = { all.ids[0] };
    minimind::generated none = context.complete({ 65 }, how);
    REQUIRE(none.ids.empty() && none.finish == MM_FINISH_STOP && none.stop == all.ids[0]);
    REQUIRE(none.stop_logprob == all.logprobs[0]);
}

// A trainer's data: rows of a file, and who reads them.
struct lessons {
    directory place;
    std::string file = (place.path / "rows.jsonl").string();
    minimind::tokenizer tokenizer = byte_tokenizer();

    minimind::loader loader(const std::string &row, mm_loader_options how)
    {
        std::ofstream out(file);
        for (int i = 0; i < 24; i++)
            out << row << "\n";
        out.close();
        how.max_length = 32;
        return minimind::loader(minimind::dataset(file), tokenizer, how);
    }

    minimind::loader texts()
    {
        auto how = minimind::make<mm_loader_options>();
        how.batch = 4;
        return loader("{\"text\": \"the cat sat on the mat\"}", how);
    }
};

mm_trainer_options one_thread()
{
    auto options = minimind::make<mm_trainer_options>();
    options.accumulation_steps = 1;
    options.threads = 1;
    return options;
}

void what_was_moved_from_is_refused()
{
    lessons of;
    auto model = tiny_model();
    auto context = tiny_context(model);
    auto loader = of.texts();
    minimind::trainer trainer(model, loader, nullptr, one_thread()), other = std::move(trainer);
    minimind::cache cache(model, 1, 32), second = std::move(cache);
    minimind::generation how;
    how.cache = &cache;
    REQUIRE(refused([&] { trainer.run(); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { context.generate({ 65 }, how); }) == MM_ERR_ARG);
    trainer = std::move(other);
    trainer.run();
    REQUIRE(trainer.progress().step == trainer.progress().total_steps);
}

void nothing_is_cut_short()
{
    minimind::config config;
    REQUIRE(refused([&] { config.set("eos_token_id", SIZE_MAX); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { config.set("hidden_act", std::string("gelu\0 junk", 10)); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { config.save(std::string("/tmp/a\0b", 8)); }) == MM_ERR_ARG);
    config.set("hidden_size", 96u).set("hidden_size", std::int8_t(64));
    config.set("rope_theta", 5.0f);
    REQUIRE(config.get_int("hidden_size") == 64 && config.unset("rope_theta").get_float("rope_theta") > 5);
}

void rewards_may_throw_and_the_run_goes_on()
{
    lessons of;
    auto how = minimind::make<mm_loader_options>();
    how.batch = 8;
    how.kind = MM_ROW_PROMPT;
    how.template_name = "minimind2";
    auto loader = of.loader("{\"conversations\": [{\"role\": \"user\", \"content\": \"hi\"}]}", how);
    auto policy = minimind::make<mm_policy_training>();
    policy.group = 2;
    policy.max_new_tokens = 4;
    auto options = one_thread();
    options.stage = MM_STAGE_POLICY;
    options.policy = &policy;
    auto model = tiny_model();
    int rewards = 0, steps = 0;
    auto count = [&](const mm_train_progress &) { return ++steps == 0; };
    minimind::trainer trainer(model, loader, &of.tokenizer, options, count, [&](const mm_answer &answer) -> double {
        if (++rewards == 3)
            throw std::out_of_range("from the reward");
        return answer.count;
    });
    REQUIRE(raised([&] { trainer.run(); }) == "from the reward" && rewards == 3);
    trainer.run();
    REQUIRE(steps == 3 && trainer.progress().step == 3 && rewards == 3 + 3 * 8 * policy.group);
}

// Of two ranks that do the same, until the other one is out of step.
struct lone_rank {
    bool fails = false;
    mm_comm comm = minimind::make<mm_comm>();

    lone_rank()
    {
        comm.user = this;
        comm.size = 2;
        comm.all_reduce = [](void *, float *values, std::int64_t count) { return twice(values, count); };
        comm.all_reduce_f64 = [](void *user, double *values, std::int64_t count) {
            bool failing = static_cast<lone_rank *>(user)->fails;
            return failing ? mm_set_last_error(MM_ERR_STATE, "out of step") : twice(values, count);
        };
        comm.broadcast = [](void *, void *, std::size_t, std::int32_t) -> mm_status { return MM_OK; };
        comm.barrier = [](void *) -> mm_status { return MM_OK; };
        comm.abort = [](void *, const char *) -> mm_status { return MM_OK; };
    }

    template <typename T> static mm_status twice(T *values, std::int64_t count)
    {
        for (std::int64_t i = 0; i < count; i++)
            values[i] *= 2;
        return MM_OK;
    }
};

void an_exception_belongs_to_its_run()
{
    lessons of;
    lone_rank rank;
    auto model = tiny_model();
    auto how = minimind::make<mm_loader_options>();
    how.batch = 2;
    how.world = 2;
    auto loader = of.loader("{\"text\": \"the cat sat on the mat\"}", how);
    auto options = one_thread();
    options.comm = &rank.comm;
    minimind::trainer *itself = nullptr;
    int steps = 0;
    minimind::trainer trainer(model, loader, nullptr, options, [&](const mm_train_progress &) -> bool {
        REQUIRE(refused([&] { itself->run(); }) == MM_ERR_STATE);
        if (++steps > 1)
            return false;
        rank.fails = true; // with the status that a second run has, too
        throw std::out_of_range("of the first step");
    });
    itself = &trainer;
    REQUIRE(raised([&] { trainer.run(); }) == "of the first step");
    rank.fails = false;
    REQUIRE(raised([&] { trainer.run(); }).empty() && steps > 1);
}

void a_loader_goes_back()
{
    lessons of;
    auto loader = of.texts();
    auto batch = minimind::make<mm_batch>();
    mm_loader_position begin = loader.tell();
    REQUIRE(loader.next(batch) && loader.tell().row > begin.row);
    loader.seek(begin);
    REQUIRE(loader.tell().row == begin.row);
    REQUIRE(minimind::dataset(of.file).text(3) == "the cat sat on the mat");
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
    lessons of;
    auto model = tiny_model();
    auto loader = of.texts();
    auto options = one_thread();
    options.learning_rate = 5e-3;
    options.epochs = 4;
    std::vector<double> losses;
    minimind::trainer made(model, loader, &of.tokenizer, options, [&](const mm_train_progress &progress) {
        losses.push_back(progress.loss);
        return false;
    });
    minimind::trainer trainer = std::move(made);
    trainer.run();
    REQUIRE(losses.size() == 24 && losses.back() < 0.7 * losses.front() && trainer.progress().step == 24);
}

std::string contents(const std::filesystem::path &path)
{
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

const std::int32_t some_ids[] = { 65, 66, 67, 68, 69, 70 }, some_targets[] = { 66, 67, 68, 69, 70, 71 };

mm_batch some_batch(std::int32_t mode)
{
    auto batch = minimind::make<mm_batch>();
    batch.batch = 1;
    batch.length = 6;
    batch.ids = some_ids;
    batch.targets = some_targets;
    batch.mode = mode;
    return batch;
}

double loss_of(minimind::context &context) { return context.forward(some_batch(MM_EVAL)).loss; }

void an_adapter_learns_beside_its_model()
{
    auto model = tiny_model();
    auto how = minimind::make<mm_adapter_options>();
    how.rank = 2;
    minimind::adapter adapter(model, how);
    REQUIRE(adapter.tensor_count() == 2 * 2 * 4 && adapter.parameters() > 0 && adapter.describe().rank == 2);
    auto options = minimind::make<mm_context_options>();
    options.mode = MM_TRAIN;
    options.max_length = 8;
    options.threads = 1;
    options.adapter = adapter.get();
    minimind::context context(model, options);
    minimind::optimizer optimizer(adapter);
    const double before = loss_of(context);
    for (int i = 0; i < 20; i++) {
        context.forward(some_batch(MM_TRAIN));
        context.backward();
        REQUIRE(optimizer.step(context, 1e-2) > 0);
        context.zero_grad();
    }
    const double after = loss_of(context);
    REQUIRE(after < before);

    directory scratch;
    adapter.save((scratch.path / "adapter").string());
    auto again = minimind::adapter::load(model, (scratch.path / "adapter").string());
    REQUIRE(again.find("model.layers.1.self_attn.v_proj.lora_B.weight").shape[1] == 2);
    REQUIRE(refused([&] { again.find("no such"); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { minimind::adapter::load(model, (scratch.path / "none").string()); }) == MM_ERR_IO);

    auto merged = again.merge();
    options.adapter = nullptr;
    minimind::context alone(merged, options);
    REQUIRE(std::abs(loss_of(alone) - after) < 1e-4);
    minimind::context other(model, options);
    REQUIRE(loss_of(other) == before);
    other.set_adapters({ &again });
    REQUIRE(loss_of(other) == after);
    other.set_adapters({ &again, &adapter }, { 0.5f, 0.5f });
    REQUIRE(std::abs(loss_of(other) - after) < 1e-4);
    other.set_adapters({});
    REQUIRE(loss_of(other) == before);
    REQUIRE(refused([&] { other.set_adapters({ &again }, { 1, 2 }); }) == MM_ERR_ARG);
    minimind::adapter moved = std::move(again);
    REQUIRE(refused([&] { other.set_adapters({ &again }); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { again.merge(); }) == MM_ERR_ARG && loss_of(other) == before);
}

void muon_learns_too()
{
    auto model = tiny_model();
    auto options = minimind::make<mm_context_options>();
    options.mode = MM_TRAIN;
    options.max_length = 8;
    options.threads = 1;
    minimind::context context(model, options);
    minimind::optimizer optimizer(model, minimind::make<mm_muon_options>());
    const double before = loss_of(context);
    for (int i = 0; i < 5; i++) {
        context.forward(some_batch(MM_TRAIN));
        context.backward();
        optimizer.step(context, 1e-2);
        context.zero_grad();
    }
    REQUIRE(loss_of(context) < before && optimizer.steps() == 5);
}

void a_value_head_learns_what_is_expected()
{
    auto model = tiny_model();
    auto options = minimind::make<mm_context_options>();
    options.max_length = 8;
    options.threads = 1;
    options.outputs = MM_OUT_HIDDEN;
    minimind::context context(model, options);
    auto batch = some_batch(MM_EVAL);
    batch.targets = nullptr;
    batch.outputs = MM_OUT_HIDDEN;
    const mm_view hidden = context.forward(batch).hidden;
    minimind::value_head head(model);
    auto miss = [&] {
        double sum = 0;
        for (float value : head.forward(hidden))
            sum += (value - 1) * (value - 1);
        return sum;
    };
    REQUIRE(miss() == 6);
    for (int i = 0; i < 30; i++) {
        std::vector<float> wrong = head.forward(hidden);
        for (float &value : wrong)
            value -= 1;
        REQUIRE(head.backward(hidden, wrong).size() == 6 * 32);
        head.step(3e-2);
    }
    const double learnt = miss();
    REQUIRE(learnt < 3);
    directory scratch;
    head.save((scratch.path / "head").string());
    head.backward(hidden, std::vector<float>(6, 1));
    head.step(1);
    REQUIRE(miss() != learnt);
    head.load((scratch.path / "head").string());
    REQUIRE(miss() == learnt);
    REQUIRE(refused([&] { head.backward(hidden, { 1 }); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { head.forward(mm_view()); }) == MM_ERR_ARG);
}

void a_report_is_written()
{
    lessons of;
    directory place;
    minimind::report report(place.path.string());
    auto model = tiny_model();
    auto loader = of.texts();
    minimind::trainer trainer(model, loader, &of.tokenizer, one_thread(), [&](const mm_train_progress &progress) {
        report.progress(progress);
        return false;
    });
    trainer.run();
    report.scalar(100, "one", 1.5);
    report.scalars(101, { { "two", 2 }, { "three", 3 } });
    report.vector(102, "four", { 4, 5 });
    report.text(103, "five", "a < b");
    report.fact("six", "seven");
    auto context = tiny_context(model);
    const char *prompts[] = { "the" };
    auto samples = minimind::make<mm_samples_options>();
    samples.prompts = prompts;
    samples.count = 1;
    samples.max_new_tokens = 4;
    report.samples(104, context, of.tokenizer, samples);
    report.flush();
    const std::string lines = contents(place.path / "metrics.jsonl"), page = contents(place.path / "report.html");
    for (const char *there : { "\"learning_rate\":", "\"one\":", "\"three\":", "\"four\":[", "\"five\":\"a < b\"", "the" })
        REQUIRE(lines.find(there) != std::string::npos);
    REQUIRE(page.find("seven") != std::string::npos && page.find("a &lt; b") != std::string::npos);
    REQUIRE(refused([&] { report.scalar(-1, "one", 1); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { report.scalars(1, { { std::string("a\0b", 3), 1 } }); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { report.vector(1, "four", {}); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { minimind::report((of.file + "/below").c_str()); }) == MM_ERR_IO);
}

void ranks_add_up_what_they_have()
{
    directory place;
    const std::string path = (place.path / "ranks").string();
    std::string problem;
    auto work = [&](std::int32_t rank) {
        auto ranks = minimind::communicator::local(path, rank, 2);
        std::vector<float> few = { rank == 0 ? 1.0f : 2.0f, 2 };
        std::vector<double> many = { 0.5 * rank };
        std::int32_t told = rank == 1 ? 42 : 0;
        ranks.all_reduce(few);
        ranks.all_reduce(many);
        ranks.broadcast(&told, sizeof told, 1);
        ranks.barrier();
        REQUIRE(ranks.rank() == rank && ranks.size() == 2 && few[0] == 3 && few[1] == 4 && many[0] == 0.5 && told == 42);
    };
    std::thread other([&] {
        try {
            work(1);
        } catch (const std::exception &error) {
            problem = error.what();
        }
    });
    try {
        work(0);
    } catch (...) {
        other.join();
        throw;
    }
    other.join();
    REQUIRE(problem.empty());

    auto alone = minimind::communicator::tcp("127.0.0.1:1", 0, 1);
    minimind::communicator moved = std::move(alone);
    REQUIRE(moved.size() == 1 && refused([&] { alone.barrier(); }) == MM_ERR_ARG);
    moved.abort("enough");

    static int returned = 0; /* a table that the library did not make is not the library's to free */
    mm_comm table = *moved.get();
    {
        minimind::communicator own(&table, [](mm_comm *) { returned++; });
        minimind::communicator taken = std::move(own);
        moved = std::move(taken);
        REQUIRE(returned == 0 && moved.get() == &table);
    }
    moved = minimind::communicator::tcp("127.0.0.1:1", 0, 1);
    REQUIRE(returned == 1 && moved.size() == 1);
    REQUIRE(refused([] { minimind::communicator::tcp("nowhere", 0, 2); }) == MM_ERR_ARG);
    REQUIRE(refused([&] { minimind::communicator::local(path, 2, 2); }) == MM_ERR_ARG);
}

void an_answer_is_taken_apart()
{
    const minimind::reply reply("<think>\nhm\n</think>\n\nYes.<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>");
    REQUIRE(reply.content() == "Yes." && reply.reasoning() == "hm" && reply.flags() == 0);
    REQUIRE(reply.call_count() == 1 && std::string(reply.call(0).name) == "add");
    REQUIRE(refused([&] { reply.call(1); }) == MM_ERR_ARG);
    minimind::chat chat;
    chat.add("user", "Is it?").add_json(reply.json());
    REQUIRE(chat.size() == 2);
    const minimind::reply plain(std::string_view("a\0b", 3)), empty(std::string_view{}), thought("so", true);
    REQUIRE(plain.content().size() == 3 && !plain.reasoning().data() && empty.content().empty());
    REQUIRE(thought.reasoning() == "so" && thought.flags() == MM_REPLY_OPEN_REASONING);
    REQUIRE(refused([] { minimind::reply("\xff"); }) == MM_ERR_ARG);
}

void a_directory_brings_it_back()
{
    directory place;
    auto model = tiny_model();
    model.save(place.path.string());
    byte_tokenizer().save(place.path.string());
    auto again = minimind::model::load(place.path.string());
    REQUIRE(again.tensor_count() == model.tensor_count() && model.quantize(MM_Q8_0).tensor_count() == again.tensor_count());
    REQUIRE(minimind::config::parse(contents(place.path / "config.json")).get_int("hidden_size") == 32);
    REQUIRE(refused([] { minimind::config::parse({}); }) == MM_ERR_FORMAT);
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
    test("what a callback throws comes before what C says, and the cache is as before", what_is_raised_comes_first);
    test("a continuation has its details", a_continuation_has_its_details);
    test("what was moved from is refused", what_was_moved_from_is_refused);
    test("no number and no text is cut short", nothing_is_cut_short);
    test("rewards may throw, and the run goes on", rewards_may_throw_and_the_run_goes_on);
    test("an exception comes out of the run that it ended", an_exception_belongs_to_its_run);
    test("a loader goes back to a place", a_loader_goes_back);
    test("a cache goes on where it stood", a_cache_goes_on);
    test("a trainer that was moved lowers the loss", a_trainer_lowers_the_loss);
    test("an adapter learns beside its model, and is merged", an_adapter_learns_beside_its_model);
    test("muon learns too", muon_learns_too);
    test("a value head learns what is expected", a_value_head_learns_what_is_expected);
    test("a report is written", a_report_is_written);
    test("ranks add up what they have", ranks_add_up_what_they_have);
    test("an answer is taken apart", an_answer_is_taken_apart);
    test("a directory brings model and tokenizer back", a_directory_brings_it_back);
    test("handles leave no memory behind", nothing_is_left);
    std::printf("1..%d\n", cases);
    return failed != 0;
}
