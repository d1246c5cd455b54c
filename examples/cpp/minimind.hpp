/**
 * @file minimind.hpp
 * libminimind for C++17, in one header: handles that free themselves, failures that are exceptions.
 *
 *     minimind::config config("minimind2-small");
 *     config.set("hidden_size", 64);
 *     minimind::model model(config, 42);
 *     minimind::context context(model, options);
 *
 * It is thin: options and results are the C structs, set up by minimind::make<mm_…>(), and get() of a handle is the C
 * handle for what has no member here; constructors of C handles take them over. Handles are moved, never copied; they may go
 * in any order. Whatever fails throws minimind::error with the library's message, or std::bad_alloc. A std::function given as a
 * callback may throw: its exception, the first if there are more, comes out of the call that made it, whatever else failed
 * there. A C function pointer in options must not throw.
 */
#ifndef MINIMIND_HPP
#define MINIMIND_HPP

#if !(defined(_MSVC_LANG) ? _MSVC_LANG >= 201703L : __cplusplus >= 201703L)
#error "minimind.hpp needs C++17"
#endif

#include <minimind.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace minimind {

/** What the library refused or could not finish; what() is its message. */
class MM_API error : public std::runtime_error {
public:
    error(mm_status status, const char *message) : std::runtime_error(message), status_(status) {}

    /** MM_ERR_… */
    mm_status status() const noexcept { return status_; }

private:
    mm_status status_;
};

/** Throw unless MM_OK. */
inline void check(mm_status status)
{
    if (status != MM_OK)
        throw error(status, mm_last_error());
}

namespace detail {

template <typename T, void (*Free)(T *)> struct freer {
    void operator()(T *handle) const noexcept { Free(handle); }
};

template <typename T, void (*Free)(T *)> using owner = std::unique_ptr<T, freer<T, Free>>;

/* Call a function whose last argument receives a new handle. */
template <typename T, typename Function, typename... Arguments> T *made(Function function, Arguments... arguments)
{
    T *out = nullptr;
    check(function(arguments..., &out));
    return out;
}

/* Call a function that writes up to `capacity` elements and says how many it needs. */
template <typename Container, typename Function> Container filled(Function function)
{
    std::size_t needed = 0;
    check(function(nullptr, 0, &needed));
    Container out(needed, typename Container::value_type());
    if (needed > 0)
        check(function(out.data(), needed, &needed));
    return out;
}

/* A size as C takes it. */
inline std::int32_t count(std::size_t size)
{
    if (size > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
        throw error(MM_ERR_ARG, "more than 2147483647 elements");
    return static_cast<std::int32_t>(size);
}

/* C wants a pointer for empty text, too. */
inline const char *begin_of(std::string_view text) noexcept { return text.data() ? text.data() : ""; }

/* Text as C takes it; a NUL would end it early. */
inline const char *c_string(const std::string &text)
{
    if (text.find('\0') != std::string::npos)
        throw error(MM_ERR_ARG, "a string with a NUL in it");
    return text.c_str();
}

/* What callbacks throw, which must not pass through C: the first waits here until the call has returned, and none is called
   after it. */
struct caught {
    std::exception_ptr raised = nullptr;

    template <typename Callback> std::int32_t operator()(Callback callback) noexcept
    {
        if (raised)
            return 1;
        try {
            return callback();
        } catch (...) {
            raised = std::current_exception();
            return 1;
        }
    }

    /* How the call ended; what was raised says more than what C made of it. */
    void check(mm_status status)
    {
        if (raised)
            std::rethrow_exception(std::exchange(raised, nullptr));
        minimind::check(status);
    }
};

template <typename T> struct initialiser;

} // namespace detail

/* A struct with its size and its defaults. */
template <typename T> T make() { return detail::initialiser<T>::value(); }

#define MINIMIND_INITIALISER(type, init)                                                                              \
    template <> struct detail::initialiser<type> {                                                                    \
        static type value()                                                                                           \
        {                                                                                                             \
            type made = init;                                                                                         \
            return made;                                                                                              \
        }                                                                                                             \
    };
MINIMIND_INITIALISER(mm_adamw_options, MM_ADAMW_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_adapter_options, MM_ADAPTER_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_answer, MM_ANSWER_INIT)
MINIMIND_INITIALISER(mm_backward_options, MM_BACKWARD_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_batch, MM_BATCH_INIT)
MINIMIND_INITIALISER(mm_chat_options, MM_CHAT_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_chat_roles, MM_CHAT_ROLES_INIT)
MINIMIND_INITIALISER(mm_choice, MM_CHOICE_INIT)
MINIMIND_INITIALISER(mm_choices_options, MM_CHOICES_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_choices_result, MM_CHOICES_RESULT_INIT)
MINIMIND_INITIALISER(mm_comm, MM_COMM_INIT)
MINIMIND_INITIALISER(mm_comm_options, MM_COMM_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_config_key, MM_CONFIG_KEY_INIT)
MINIMIND_INITIALISER(mm_context_options, MM_CONTEXT_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_dataset_options, MM_DATASET_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_distill_options, MM_DISTILL_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_distill_result, MM_DISTILL_RESULT_INIT)
MINIMIND_INITIALISER(mm_dpo_options, MM_DPO_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_dpo_result, MM_DPO_RESULT_INIT)
MINIMIND_INITIALISER(mm_evaluate_text_options, MM_EVALUATE_TEXT_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_evaluation, MM_EVALUATION_INIT)
MINIMIND_INITIALISER(mm_flops, MM_FLOPS_INIT)
MINIMIND_INITIALISER(mm_gae_options, MM_GAE_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_generate_options, MM_GENERATE_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_generate_result, MM_GENERATE_RESULT_INIT)
MINIMIND_INITIALISER(mm_loader_options, MM_LOADER_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_loader_position, MM_LOADER_POSITION_INIT)
MINIMIND_INITIALISER(mm_loader_stats, MM_LOADER_STATS_INIT)
MINIMIND_INITIALISER(mm_load_options, MM_LOAD_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_memory, MM_MEMORY_INIT)
MINIMIND_INITIALISER(mm_memory_usage, MM_MEMORY_USAGE_INIT)
MINIMIND_INITIALISER(mm_muon_options, MM_MUON_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_output, MM_OUTPUT_INIT)
MINIMIND_INITIALISER(mm_param_count, MM_PARAM_COUNT_INIT)
MINIMIND_INITIALISER(mm_policy_options, MM_POLICY_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_policy_result, MM_POLICY_RESULT_INIT)
MINIMIND_INITIALISER(mm_policy_training, MM_POLICY_TRAINING_INIT)
MINIMIND_INITIALISER(mm_ppo_options, MM_PPO_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_ppo_result, MM_PPO_RESULT_INIT)
MINIMIND_INITIALISER(mm_prompts, MM_PROMPTS_INIT)
MINIMIND_INITIALISER(mm_prompts_options, MM_PROMPTS_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_prompts_result, MM_PROMPTS_RESULT_INIT)
MINIMIND_INITIALISER(mm_prompt_answer, MM_PROMPT_ANSWER_INIT)
MINIMIND_INITIALISER(mm_report_options, MM_REPORT_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_row_report, MM_ROW_REPORT_INIT)
MINIMIND_INITIALISER(mm_samples_options, MM_SAMPLES_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_sampling, MM_SAMPLING_INIT)
MINIMIND_INITIALISER(mm_step, MM_STEP_INIT)
MINIMIND_INITIALISER(mm_tensor_info, MM_TENSOR_INFO_INIT)
MINIMIND_INITIALISER(mm_tokenizer_train_options, MM_TOKENIZER_TRAIN_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_tool_call, MM_TOOL_CALL_INIT)
MINIMIND_INITIALISER(mm_trainer_options, MM_TRAINER_OPTIONS_INIT)
MINIMIND_INITIALISER(mm_train_progress, MM_TRAIN_PROGRESS_INIT)
MINIMIND_INITIALISER(mm_workload, MM_WORKLOAD_INIT)
#undef MINIMIND_INITIALISER

/** An architecture, field by field. */
class config {
public:
    explicit config(const char *preset = nullptr) : handle_(detail::made<mm_config>(mm_config_create, preset)) {}
    explicit config(mm_config *taken) : handle_(taken) {}

    /** From a config.json or a directory that holds one. */
    static config load(const std::string &path)
    {
        return config(detail::made<mm_config>(mm_config_load, detail::c_string(path)));
    }

    /** From the text of a config.json. */
    static config parse(std::string_view json)
    {
        return config(detail::made<mm_config>(mm_config_load_memory, detail::begin_of(json), json.size()));
    }

    config copy() const { return config(detail::made<mm_config>(mm_config_copy, get())); }
    void save(const std::string &path) const { check(mm_config_save(get(), detail::c_string(path))); }
    void validate() const { check(mm_config_validate(get())); }

    /** Set a field; the type of `value` chooses the function. */
    template <typename T> config &set(const char *key, T value)
    {
        if constexpr (std::is_same_v<T, bool>)
            check(mm_config_set_bool(get(), key, value));
        else if constexpr (std::is_integral_v<T>)
            check(mm_config_set_int(get(), key, whole(value)));
        else if constexpr (std::is_floating_point_v<T>)
            check(mm_config_set_float(get(), key, static_cast<double>(value)));
        else
            check(mm_config_set_string(get(), key, detail::c_string(std::string(value))));
        return *this;
    }

    /** As if the field had never been set. */
    config &unset(const char *key)
    {
        check(mm_config_unset(get(), key));
        return *this;
    }

    std::int64_t get_int(const char *key) const { return read<std::int64_t>(mm_config_get_int, key); }
    double get_float(const char *key) const { return read<double>(mm_config_get_float, key); }
    bool get_bool(const char *key) const { return read<std::int32_t>(mm_config_get_bool, key) != 0; }

    std::string get_string(const char *key) const
    {
        std::string text = detail::filled<std::string>([&](char *out, std::size_t capacity, std::size_t *needed) {
            return mm_config_get_string(get(), key, out, capacity, needed);
        });
        text.pop_back(); /* its NUL */
        return text;
    }

    mm_param_count parameters() const
    {
        auto count = make<mm_param_count>();
        check(mm_count_params(get(), &count));
        return count;
    }

    mm_config *get() const noexcept { return handle_.get(); }

private:
    template <typename T> static std::int64_t whole(T value)
    {
        if (value > T() && static_cast<std::int64_t>(value) < 0) /* an unsigned one that has no room */
            throw error(MM_ERR_ARG, "a number beyond 9223372036854775807");
        return static_cast<std::int64_t>(value);
    }

    template <typename T, typename Function> T read(Function function, const char *key) const
    {
        T value = 0;
        check(function(get(), key, &value));
        return value;
    }

    detail::owner<mm_config, mm_config_free> handle_;
};

/** The weights of one config. */
class model {
public:
    model(const config &config, std::uint64_t seed) : handle_(detail::made<mm_model>(mm_model_create, config.get(), seed)) {}
    explicit model(mm_model *taken) : handle_(taken) {}

    /** From a Hugging Face directory. */
    static model load(const std::string &directory, const mm_load_options *options = nullptr)
    {
        return model(detail::made<mm_model>(mm_model_load, detail::c_string(directory), options));
    }

    model copy() const { return model(detail::made<mm_model>(mm_model_copy, get())); }
    model cast(std::int32_t dtype) const { return model(detail::made<mm_model>(mm_model_cast, get(), dtype)); }
    model quantize(std::int32_t dtype) const { return model(detail::made<mm_model>(mm_model_quantize, get(), dtype)); }
    void save(const std::string &directory) const { check(mm_model_save(get(), detail::c_string(directory))); }
    std::int64_t tensor_count() const { return mm_model_tensor_count(get()); }

    /** A tensor by its name, lent until the model is freed, for reading. */
    mm_view find(const char *name) const && = delete;
    mm_view find(const char *name) const &
    {
        mm_view view;
        check(mm_model_find(get(), name, &view));
        return view;
    }

    mm_model *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_model, mm_model_free> handle_;
};

/** Low-rank additions (LoRA) to some matrices of a model. */
class adapter {
public:
    explicit adapter(mm_adapter *taken) : handle_(taken) {}
    explicit adapter(const model &model, const mm_adapter_options &options = make<mm_adapter_options>())
        : handle_(detail::made<mm_adapter>(mm_adapter_create, model.get(), &options))
    {
    }

    /** From a directory as PEFT writes it, or a safetensors file alone. */
    static adapter load(const model &model, const std::string &path)
    {
        return adapter(detail::made<mm_adapter>(mm_adapter_load, model.get(), detail::c_string(path)));
    }
    void save(const std::string &directory) const { check(mm_adapter_save(get(), detail::c_string(directory))); }

    /** A model that needs no adapter any more: the adapter's own with `weight` times what it adds. */
    model merge(float weight = 1) const
    {
        mm_adapter *one = get();
        return model(detail::made<mm_model>(mm_adapter_merge, one ? mm_adapter_model(one) : nullptr, &one, &weight, 1));
    }

    /** What it was made with; `targets` is lent until the adapter is freed. */
    mm_adapter_options describe() const && = delete;
    mm_adapter_options describe() const &
    {
        auto options = make<mm_adapter_options>();
        check(mm_adapter_describe(get(), &options));
        return options;
    }

    std::int64_t tensor_count() const { return mm_adapter_tensor_count(get()); }
    std::int64_t parameters() const { return mm_adapter_count_params(get()); }

    /** A tensor by its name, lent until the adapter is freed, for reading. */
    mm_view find(const char *name) const && = delete;
    mm_view find(const char *name) const &
    {
        mm_view view;
        check(mm_adapter_find(get(), name, &view));
        return view;
    }

    mm_adapter *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_adapter, mm_adapter_free> handle_;
};

/** Keys and values of sequences that go on from call to call. */
class cache {
public:
    explicit cache(mm_cache *taken) : handle_(taken) {}
    cache(const model &model, std::int32_t sequences, std::int32_t capacity, std::int32_t dtype = MM_F32)
        : handle_(detail::made<mm_cache>(mm_cache_create, model.get(), sequences, capacity, dtype))
    {
    }

    /** As save() left it. */
    static cache load(const model &model, const std::string &path)
    {
        return cache(detail::made<mm_cache>(mm_cache_load, model.get(), detail::c_string(path)));
    }
    void save(const std::string &path) const { check(mm_cache_save(get(), detail::c_string(path))); }

    /** Begin `sequence` (-1: every one) as `origin` begins in `from`: all it holds, or `length` tokens. */
    void fork(const cache &from, std::int32_t origin = 0, std::int32_t sequence = -1, std::int32_t length = -1)
    {
        check(mm_cache_fork(get(), sequence, from.get(), origin, length));
    }

    std::int32_t length(std::int32_t sequence = 0) const { return mm_cache_length(get(), sequence); }
    void truncate(std::int32_t length = 0, std::int32_t sequence = -1) { check(mm_cache_truncate(get(), sequence, length)); }
    mm_cache *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_cache, mm_cache_free> handle_;
};

/** How generate() goes about it, beyond mm_sampling. */
struct generation {
    mm_sampling sampling = make<mm_sampling>();
    std::int32_t max_new_tokens = 128;
    bool stops = true;                                                 /**< at the config's eos, or at stop_ids if there are any */
    std::vector<std::int32_t> stop_ids = {};
    minimind::cache *cache = nullptr;                                  /**< goes on; after an exception it stands where it stood */
    std::function<bool(std::int32_t id, float logprob)> on_token = {}; /**< true ends the sequence */
    /** Before each token is drawn: the ids made so far and the logits, which it may change. True: nothing more is drawn. */
    std::function<bool(const std::int32_t *ids, std::int32_t count, float *logits, std::int32_t vocab_size)> on_logits = {};
};

/** What a prompt was continued with. */
struct generated {
    std::vector<std::int32_t> ids;
    std::vector<float> logprobs; /**< of each of them */
    std::int32_t finish;         /**< MM_FINISH_… */
    std::int32_t stop;           /**< the id that ended it, which isn't one of ids; -1: none did */
    float stop_logprob;          /**< of that; else 0 */
};

/** Running a model. One call at a time. */
class context {
public:
    explicit context(mm_context *taken) : handle_(taken) {}
    explicit context(const model &model, const mm_context_options &options = make<mm_context_options>())
        : handle_(detail::made<mm_context>(mm_context_create, model.get(), &options))
    {
    }

    mm_output forward(const mm_batch &batch)
    {
        auto output = make<mm_output>();
        check(mm_forward(get(), &batch, &output));
        return output;
    }

    void backward(const mm_backward_options &options = make<mm_backward_options>()) { check(mm_backward(get(), &options)); }
    void zero_grad() { check(mm_zero_grad(get())); }
    void cancel() noexcept { mm_cancel(get()); }

    /** Run with these adapters from now on, each counted weights[i] times, or once where there are no weights. */
    void set_adapters(const std::vector<const adapter *> &adapters, const std::vector<float> &weights = {})
    {
        if (!weights.empty() && weights.size() != adapters.size())
            throw error(MM_ERR_ARG, "as many weights as adapters are wanted, or none");
        std::vector<mm_adapter *> handles;
        for (const adapter *one : adapters)
            handles.push_back(one ? one->get() : nullptr);
        check(mm_context_set_adapters(get(), handles.data(), weights.empty() ? nullptr : weights.data(),
                                      detail::count(handles.size())));
    }

    double grad_norm()
    {
        double norm = 0;
        check(mm_grad_norm(get(), &norm));
        return norm;
    }

    /** Continue one prompt of ids. */
    std::vector<std::int32_t> generate(const std::vector<std::int32_t> &prompt, const generation &how = generation())
    {
        return complete(prompt, how).ids;
    }

    /** … and tell all of it. */
    generated complete(const std::vector<std::int32_t> &prompt, const generation &how = generation())
    {
        static const std::int32_t none = 0;
        const std::int32_t *prompts[] = { prompt.data() }, lengths[] = { detail::count(prompt.size()) };
        call told_to{ how.on_token, how.on_logits, {} };
        if (how.cache && !how.cache->get())
            throw error(MM_ERR_ARG, "the cache was moved from");
        const std::int32_t stood = how.cache ? how.cache->length() : 0;
        auto options = make<mm_generate_options>();
        options.prompts = prompts;
        options.prompt_lengths = lengths;
        options.sampling = &how.sampling;
        options.max_new_tokens = how.max_new_tokens;
        options.cache = how.cache ? how.cache->get() : nullptr;
        options.stop_ids = !how.stops ? &none : how.stop_ids.empty() ? nullptr : how.stop_ids.data();
        options.stop_count = how.stops ? detail::count(how.stop_ids.size()) : 0;
        options.user = &told_to;
        if (how.on_token)
            options.on_token = told;
        if (how.on_logits)
            options.on_logits = changed;
        auto result = make<mm_generate_result>();
        const mm_status status = mm_generate(get(), &options, &result);
        try {
            told_to.caught.check(status);
            const std::int32_t length = result.lengths[0];
            return { { result.ids, result.ids + length }, { result.logprobs, result.logprobs + length }, result.finish[0],
                     result.stops[0], result.stop_logprobs[0] };
        } catch (...) {
            if (status == MM_OK && how.cache) /* else C has cut it back */
                mm_cache_truncate(how.cache->get(), 0, stood);
            throw;
        }
    }

    mm_context *get() const noexcept { return handle_.get(); }

private:
    struct call {
        const std::function<bool(std::int32_t, float)> &on_token;
        const std::function<bool(const std::int32_t *, std::int32_t, float *, std::int32_t)> &on_logits;
        detail::caught caught;
    };

    static std::int32_t told(void *user, std::int32_t, std::int32_t id, float logprob) noexcept
    {
        call *self = static_cast<call *>(user);
        return self->caught([&] { return self->on_token(id, logprob); });
    }

    static std::int32_t changed(void *user, std::int32_t, const std::int32_t *ids, std::int32_t count, float *logits,
                                std::int32_t vocab_size) noexcept
    {
        call *self = static_cast<call *>(user);
        return self->caught([&] { return self->on_logits(ids, count, logits, vocab_size); });
    }

    detail::owner<mm_context, mm_context_free> handle_;
};

/** AdamW of a model's weights or of an adapter's, or Muon. */
class optimizer {
public:
    explicit optimizer(mm_optimizer *taken) : handle_(taken) {}
    explicit optimizer(model &model, const mm_adamw_options &options = make<mm_adamw_options>())
        : handle_(detail::made<mm_optimizer>(mm_adamw_create, model.get(), &options))
    {
    }
    explicit optimizer(adapter &adapter, const mm_adamw_options &options = make<mm_adamw_options>())
        : handle_(detail::made<mm_optimizer>(mm_adamw_create_adapter, adapter.get(), &options))
    {
    }
    optimizer(model &model, const mm_muon_options &options)
        : handle_(detail::made<mm_optimizer>(mm_muon_create, model.get(), &options))
    {
    }

    /** Update the weights; returns the gradients' norm before clipping. */
    double step(context &context, double learning_rate, double max_grad_norm = 0)
    {
        auto step = make<mm_step>();
        step.learning_rate = learning_rate;
        step.max_grad_norm = max_grad_norm;
        check(mm_optimizer_step(get(), context.get(), &step));
        return step.grad_norm;
    }

    std::int64_t steps() const { return mm_optimizer_steps(get()); }
    void save(const std::string &path) const { check(mm_optimizer_save(get(), detail::c_string(path))); }
    void load(const std::string &path) { check(mm_optimizer_load(get(), detail::c_string(path))); }
    mm_optimizer *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_optimizer, mm_optimizer_free> handle_;
};

/** What a policy expects its answers to earn: a number per token, read from hidden states. */
class value_head {
public:
    explicit value_head(mm_value_head *taken) : handle_(taken) {}
    explicit value_head(const model &model, const mm_adamw_options &options = make<mm_adamw_options>())
        : handle_(detail::made<mm_value_head>(mm_value_head_create, model.get(), &options))
    {
    }

    /** One for each token of mm_output.hidden [B, T, C]. */
    std::vector<float> forward(const mm_view &hidden)
    {
        std::vector<float> values(tokens(hidden));
        check(mm_value_head_forward(get(), &hidden, values.data()));
        return values;
    }

    /** Add to the head's gradients; returns the hidden states' [B, T, C], for mm_backward_options.d_hidden. */
    std::vector<float> backward(const mm_view &hidden, const std::vector<float> &d_values, double scale = 1)
    {
        if (d_values.size() != tokens(hidden))
            throw error(MM_ERR_ARG, "d_values has another size than the values");
        std::vector<float> d_hidden(tokens(hidden) * static_cast<std::size_t>(hidden.shape[2]));
        check(mm_value_head_backward(get(), &hidden, d_values.data(), scale, d_hidden.data()));
        return d_hidden;
    }

    /** Update the weights; returns the gradients' norm before clipping. */
    double step(double learning_rate, double max_grad_norm = 0)
    {
        auto step = make<mm_step>();
        step.learning_rate = learning_rate;
        step.max_grad_norm = max_grad_norm;
        check(mm_value_head_step(get(), &step));
        return step.grad_norm;
    }

    void zero_grad() { check(mm_value_head_zero_grad(get())); }
    void save(const std::string &path) const { check(mm_value_head_save(get(), detail::c_string(path))); }
    void load(const std::string &path) { check(mm_value_head_load(get(), detail::c_string(path))); }
    mm_value_head *get() const noexcept { return handle_.get(); }

private:
    static std::size_t tokens(const mm_view &hidden)
    {
        if (!hidden.data || hidden.rank != 3)
            throw error(MM_ERR_ARG, "hidden states are [B, T, C], as MM_OUT_HIDDEN asks for");
        return static_cast<std::size_t>(hidden.shape[0] * hidden.shape[1]);
    }

    detail::owner<mm_value_head, mm_value_head_free> handle_;
};

/** Text to ids and back. */
class tokenizer {
public:
    explicit tokenizer(mm_tokenizer *taken) : handle_(taken) {}

    static tokenizer load(const std::string &path)
    {
        return tokenizer(detail::made<mm_tokenizer>(mm_tokenizer_load, detail::c_string(path)));
    }

    /** Learn a byte-level BPE from texts. */
    static tokenizer train(const std::vector<std::string> &texts, std::int32_t vocab_size)
    {
        struct source {
            const std::vector<std::string> *texts;
            std::size_t next;
        } source{ &texts, 0 };
        auto options = make<mm_tokenizer_train_options>();
        options.user = &source;
        options.vocab_size = vocab_size;
        options.next_text = [](void *user, const char **text, std::size_t *length) -> std::int32_t {
            struct source *from = static_cast<struct source *>(user);
            if (from->next == from->texts->size())
                return 0;
            const std::string &one = (*from->texts)[from->next++];
            *text = one.data();
            *length = one.size();
            return 1;
        };
        return tokenizer(detail::made<mm_tokenizer>(mm_tokenizer_train, &options));
    }

    void save(const std::string &directory) const { check(mm_tokenizer_save(get(), detail::c_string(directory))); }
    std::int32_t vocab_size() const { return mm_tokenizer_vocab_size(get()); }
    std::int32_t find(const char *content) const { return mm_tokenizer_find(get(), content); }

    std::vector<std::int32_t> encode(std::string_view text, std::int32_t split = MM_SPLIT_ALL) const
    {
        return detail::filled<std::vector<std::int32_t>>([&](std::int32_t *ids, std::size_t capacity, std::size_t *needed) {
            return mm_encode(get(), detail::begin_of(text), text.size(), split, ids, capacity, needed);
        });
    }

    std::string decode(const std::vector<std::int32_t> &ids, bool skip_special = true) const
    {
        return detail::filled<std::string>([&](char *text, std::size_t capacity, std::size_t *needed) {
            return mm_decode(get(), ids.data(), ids.size(), skip_special, text, capacity, needed);
        });
    }

    mm_tokenizer *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_tokenizer, mm_tokenizer_free> handle_;
};

/** Text from ids that arrive one by one; never half a character. */
class decoder {
public:
    explicit decoder(mm_decoder *taken) : handle_(taken) {}
    explicit decoder(const tokenizer &tokenizer, bool skip_special = true)
        : handle_(detail::made<mm_decoder>(mm_decoder_create, tokenizer.get(), skip_special))
    {
    }

    /** Lent until the next call. */
    std::string_view push(std::int32_t id)
    {
        const char *text = nullptr;
        std::size_t length = 0;
        check(mm_decoder_push(handle_.get(), id, &text, &length));
        return { text, length };
    }

    std::string_view flush()
    {
        const char *text = nullptr;
        std::size_t length = 0;
        check(mm_decoder_flush(handle_.get(), &text, &length));
        return { text, length };
    }

    mm_decoder *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_decoder, mm_decoder_free> handle_;
};

/** A conversation. */
class chat {
public:
    /* of mm_chat *, but not of {}, which is a new one */
    template <typename T, typename = std::enable_if_t<std::is_same_v<T, mm_chat>>>
    explicit chat(T *taken) : handle_(taken)
    {
    }
    chat() : handle_(detail::made<mm_chat>(mm_chat_create)) {}

    chat &add(const char *role, std::string_view content)
    {
        check(mm_chat_add(get(), role, detail::begin_of(content), content.size()));
        return *this;
    }

    /** A message, or a list of them, as JSON. */
    chat &add_json(std::string_view json)
    {
        check(mm_chat_add_json(get(), detail::begin_of(json), json.size()));
        return *this;
    }

    chat &set_tools(std::string_view json)
    {
        check(mm_chat_set_tools_json(get(), detail::begin_of(json), json.size()));
        return *this;
    }

    /** Keep the first `count` messages. */
    void truncate(std::size_t count) { check(mm_chat_truncate(get(), count)); }

    std::string format(const tokenizer &tokenizer, const mm_chat_options &options) const
    {
        return detail::filled<std::string>([&](char *text, std::size_t capacity, std::size_t *needed) {
            return mm_chat_format(get(), tokenizer.get(), &options, text, capacity, needed);
        });
    }

    std::vector<std::int32_t> encode(const tokenizer &tokenizer, const mm_chat_options &options) const
    {
        return detail::filled<std::vector<std::int32_t>>([&](std::int32_t *ids, std::size_t capacity, std::size_t *needed) {
            return mm_chat_encode(get(), tokenizer.get(), &options, ids, capacity, needed);
        });
    }

    std::size_t size() const { return mm_chat_count(get()); }
    mm_chat *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_chat, mm_chat_free> handle_;
};

/** What a model answered, taken apart. Its texts may hold NULs; the views are lent until it is freed. */
class reply {
public:
    explicit reply(mm_chat_reply *taken) : handle_(taken) {}

    /** `in_thought`: the prompt ended within an open <think> block. */
    explicit reply(std::string_view text, bool in_thought = false)
        : handle_(detail::made<mm_chat_reply>(mm_chat_parse, detail::begin_of(text), text.size(), in_thought))
    {
    }

    std::string_view content() const && = delete;
    std::string_view content() const & { return lent(mm_chat_reply_content); }

    /** Its data() is NULL if there was no block. */
    std::string_view reasoning() const && = delete;
    std::string_view reasoning() const & { return lent(mm_chat_reply_reasoning); }

    /** As a message for chat::add_json(). */
    std::string_view json() const && = delete;
    std::string_view json() const & { return lent(mm_chat_reply_json); }

    std::int32_t flags() const { return mm_chat_reply_flags(get()); }
    std::size_t call_count() const { return mm_chat_reply_call_count(get()); }

    mm_tool_call call(std::size_t index) const && = delete;
    mm_tool_call call(std::size_t index) const &
    {
        auto call = make<mm_tool_call>();
        check(mm_chat_reply_call(get(), index, &call));
        return call;
    }

    mm_chat_reply *get() const noexcept { return handle_.get(); }

private:
    std::string_view lent(const char *(*of)(const mm_chat_reply *, std::size_t *)) const
    {
        std::size_t length = 0;
        const char *text = of(get(), &length);
        return text ? std::string_view(text, length) : std::string_view();
    }

    detail::owner<mm_chat_reply, mm_chat_reply_free> handle_;
};

/** JSON-lines files as one list of rows. */
class dataset {
public:
    explicit dataset(mm_dataset *taken) : handle_(taken) {}
    explicit dataset(std::nullptr_t) = delete;
    explicit dataset(const std::string &path) : handle_(detail::made<mm_dataset>(mm_dataset_open, detail::c_string(path))) {}
    explicit dataset(const mm_dataset_options &options) : handle_(detail::made<mm_dataset>(mm_dataset_create, &options)) {}

    std::int64_t rows() const { return mm_dataset_rows(get()); }

    std::string text(std::int64_t row) const
    {
        return detail::filled<std::string>([&](char *out, std::size_t capacity, std::size_t *needed) {
            return mm_dataset_text(get(), row, out, capacity, needed);
        });
    }

    mm_dataset *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_dataset, mm_dataset_free> handle_;
};

/** Turns rows into batches. */
class loader {
public:
    explicit loader(mm_loader *taken) : handle_(taken) {}
    loader(const dataset &dataset, const tokenizer &tokenizer, const mm_loader_options &options = make<mm_loader_options>())
        : handle_(detail::made<mm_loader>(mm_loader_create, dataset.get(), tokenizer.get(), &options))
    {
    }

    /** Fill `batch`, lent until the next call; false at the end of the epoch. */
    bool next(mm_batch &batch)
    {
        check(mm_loader_next(get(), &batch));
        return batch.batch > 0;
    }

    /** Where next() goes on, to be sought by a loader of the same rows. */
    mm_loader_position tell() const
    {
        auto position = make<mm_loader_position>();
        check(mm_loader_tell(get(), &position));
        return position;
    }

    void seek(const mm_loader_position &position) { check(mm_loader_seek(get(), &position)); }

    mm_loader *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_loader, mm_loader_free> handle_;
};

/** What a run tells, kept in files for people and other tools. One call at a time. */
class report {
public:
    explicit report(mm_report *taken) : handle_(taken) {}
    explicit report(const std::string &directory, const mm_report_options &options = make<mm_report_options>())
        : handle_(detail::made<mm_report>(mm_report_create, detail::c_string(directory), &options))
    {
    }

    void scalar(std::int64_t step, const char *name, double value) { check(mm_report_scalar(get(), step, name, value)); }

    /** Values of one step, {{"loss", 3.2}, {"accuracy", 0.4}}: one line of metrics.jsonl. */
    void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>> &values)
    {
        std::vector<const char *> names;
        std::vector<double> numbers;
        for (const auto &[name, value] : values) {
            names.push_back(detail::c_string(name));
            numbers.push_back(value);
        }
        check(mm_report_scalars(get(), step, names.data(), numbers.data(), detail::count(names.size())));
    }

    void vector(std::int64_t step, const char *name, const std::vector<double> &values)
    {
        check(mm_report_vector(get(), step, name, values.data(), detail::count(values.size())));
    }

    void text(std::int64_t step, const char *name, std::string_view text)
    {
        check(mm_report_text(get(), step, name, detail::begin_of(text), text.size()));
    }

    void fact(const char *name, const std::string &text) { check(mm_report_fact(get(), name, detail::c_string(text))); }

    /** What a trainer's step was like, for its on_step. */
    void progress(const mm_train_progress &progress) { check(mm_report_progress(get(), &progress)); }

    /** What the model goes on with from some prompts. */
    void samples(std::int64_t step, context &context, const tokenizer &tokenizer, const mm_samples_options &options)
    {
        check(mm_report_samples(get(), step, context.get(), tokenizer.get(), &options));
    }

    /** Redraw report.html. */
    void flush() { check(mm_report_flush(get())); }
    mm_report *get() const noexcept { return handle_.get(); }

private:
    detail::owner<mm_report, mm_report_free> handle_;
};

/** The ranks that train one model together; get() is for mm_trainer_options.comm. It must outlive the trainer. */
class communicator {
public:
    /** `give_back` frees `taken`: for one of MPI that is mm_comm_mpi_free, for a table of one's own whatever it needs. */
    explicit communicator(mm_comm *taken, void (*give_back)(mm_comm *) = mm_comm_free) : handle_(taken, give_back) {}

    /** Meet the other ranks on this machine, at a file name that does not exist yet. */
    static communicator local(const std::string &path, std::int32_t rank, std::int32_t size,
                              const mm_comm_options &options = make<mm_comm_options>())
    {
        return communicator(detail::made<mm_comm>(mm_comm_local_create, detail::c_string(path), rank, size, &options));
    }

    /** Meet them over TCP, where rank 0 is to be found: "host:port". */
    static communicator tcp(const std::string &address, std::int32_t rank, std::int32_t size,
                            const mm_comm_options &options = make<mm_comm_options>())
    {
        return communicator(detail::made<mm_comm>(mm_comm_tcp_create, detail::c_string(address), rank, size, &options));
    }

    std::int32_t rank() const { return table().rank; }
    std::int32_t size() const { return table().size; }
    void all_reduce(std::vector<float> &values)
    {
        check(table().all_reduce(table().user, values.data(), static_cast<std::int64_t>(values.size())));
    }
    void all_reduce(std::vector<double> &values)
    {
        check(table().all_reduce_f64(table().user, values.data(), static_cast<std::int64_t>(values.size())));
    }
    void broadcast(void *data, std::size_t size, std::int32_t root)
    {
        check(table().broadcast(table().user, data, size, root));
    }
    void barrier() { check(table().barrier(table().user)); }
    void abort(const std::string &reason) { check(table().abort(table().user, detail::c_string(reason))); }
    mm_comm *get() const noexcept { return handle_.get(); }

private:
    const mm_comm &table() const
    {
        if (!handle_)
            throw error(MM_ERR_ARG, "the communicator was moved from");
        return *handle_;
    }

    std::unique_ptr<mm_comm, void (*)(mm_comm *)> handle_;
};

/** The training loop. */
class trainer {
public:
    using step_function = std::function<bool(const mm_train_progress &)>;
    using reward_function = std::function<double(const mm_answer &)>;

    /** `on_step` returns true to stop; `reward` is that of options.policy. What they throw comes out of run(). The trainer
     *  sets on_step, reward and their user itself. */
    trainer(model &model, loader &loader, const tokenizer *tokenizer, mm_trainer_options options,
            step_function on_step = {}, reward_function reward = {})
        : call_(std::make_unique<call>())
    {
        call_->on_step = std::move(on_step);
        call_->reward = std::move(reward);
        options.on_step = call_->on_step ? told : nullptr;
        options.user = call_.get();
        mm_policy_training policy = options.policy ? *options.policy : make<mm_policy_training>(); /* copied by C */
        if (call_->reward) {
            policy.reward = judged;
            policy.user = call_.get();
            options.policy = &policy;
        }
        handle_.reset(detail::made<mm_trainer>(mm_trainer_create, model.get(), loader.get(),
                                               tokenizer ? tokenizer->get() : nullptr, &options));
    }

    trainer(trainer &&) noexcept = default;
    trainer &operator=(trainer &&other) noexcept
    {
        handle_ = std::move(other.handle_); /* before what it calls */
        call_ = std::move(other.call_);
        return *this;
    }

    void run()
    {
        call *of_this = call_.get(); /* on_step may move the trainer */
        if (!of_this)
            check(mm_trainer_run(get()));
        else if (of_this->runs.exchange(true)) /* what is thrown there comes out there */
            throw error(MM_ERR_STATE, "the trainer is running");
        else
            of_this->run(get());
    }

    void resume(const std::string &path) { check(mm_trainer_resume(get(), detail::c_string(path))); }
    void save() { check(mm_trainer_save(get())); }
    void stop() noexcept { mm_trainer_stop(get()); }

    mm_train_progress progress() const
    {
        auto progress = make<mm_train_progress>();
        check(mm_trainer_progress(get(), &progress));
        return progress;
    }

    mm_trainer *get() const noexcept { return handle_.get(); }

private:
    struct call {
        step_function on_step;
        reward_function reward;
        detail::caught caught;
        std::atomic<bool> runs{ false };

        void run(mm_trainer *trainer)
        {
            const mm_status status = mm_trainer_run(trainer);
            runs = false;
            caught.check(status);
        }
    };

    static std::int32_t told(void *user, const mm_train_progress *progress) noexcept
    {
        call *self = static_cast<call *>(user);
        return self->caught([&] { return self->on_step(*progress); });
    }

    static std::int32_t judged(void *user, const mm_answer *answer, double *reward) noexcept
    {
        call *self = static_cast<call *>(user);
        return self->caught([&] {
            *reward = self->reward(*answer);
            return false;
        });
    }

    std::unique_ptr<call> call_; /* stays where it is when the trainer is moved */
    detail::owner<mm_trainer, mm_trainer_free> handle_;
};

} // namespace minimind

#endif
