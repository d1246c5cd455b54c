// sing: embed.c's melody in C++.
//
//     sing
//
// A tiny model learns a sequence of ids and goes on with it. Handles free themselves, and what fails is an exception.
#include "minimind.hpp"

#include <cstring>
#include <iostream>

namespace {

constexpr std::int32_t length = 32;

minimind::model make_model()
{
    minimind::config config("minimind2-small");
    config.set("vocab_size", 32).set("hidden_size", 64).set("num_hidden_layers", 2);
    config.set("num_attention_heads", 4).set("num_key_value_heads", 2).set("max_position_embeddings", 64);
    std::cout << "A model of " << config.parameters().total << " parameters.\n";
    return minimind::model(config, 42);
}

minimind::context make_context(const minimind::model &model)
{
    auto options = minimind::make<mm_context_options>();
    options.mode = MM_TRAIN;
    options.max_length = length;
    options.outputs = MM_OUT_LOSS | MM_OUT_LAST_LOGITS;
    options.threads = 1;
    return minimind::context(model, options);
}

void train(minimind::context &context, minimind::model &model)
{
    const std::int32_t melody[] = { 5, 17, 9, 12, 21, 3, 17, 8 };
    std::vector<std::int32_t> ids, targets;
    for (std::int32_t i = 0; i < length; i++) {
        ids.push_back(melody[i % 8]);
        targets.push_back(melody[(i + 1) % 8]);
    }
    auto batch = minimind::make<mm_batch>();
    batch.ids = ids.data();
    batch.targets = targets.data();
    batch.batch = 1;
    batch.length = length;
    batch.mode = MM_TRAIN;
    batch.outputs = MM_OUT_LOSS;

    minimind::optimizer optimizer(model);
    for (int step = 1; step <= 60; step++) {
        context.zero_grad();
        double loss = context.forward(batch).loss;
        context.backward();
        optimizer.step(context, 3e-3, 1.0);
        if (step == 1 || step % 20 == 0)
            std::cout << "step " << step << "  loss " << loss << "\n";
    }
}

void sing(minimind::context &context)
{
    minimind::generation how;
    how.sampling.temperature = 0;
    how.stops = false;
    how.max_new_tokens = 12;
    std::cout << "5 17 9 goes on with";
    for (std::int32_t id : context.generate({ 5, 17, 9 }, how))
        std::cout << " " << id;
    std::cout << "\n";
}

/* A full disk is noticed when what was written is sent on. */
int written()
{
    if (std::cout.flush())
        return 0;
    std::cerr << "sing: can't write standard output\n";
    return 1;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1) {
        bool asked = std::strcmp(argv[1], "--help") == 0;
        (asked ? std::cout : std::cerr) << "usage: sing\n\nTeach a tiny model a sequence of ids and let it go on.\n";
        return asked ? written() : 1;
    }
    try {
        minimind::model model = make_model();
        minimind::context context = make_context(model);
        train(context, model);
        sing(context);
    } catch (const minimind::error &error) {
        std::cerr << "sing: " << mm_status_name(error.status()) << ": " << error.what() << "\n";
        return 1;
    }
    return written();
}
