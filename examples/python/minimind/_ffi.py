"""The C declarations of <minimind.h>: constants, structs, callbacks and functions, name by name.

Written by tests/python/headers.py from the headers; the tests hold it against headers, compiler and library.
"""
from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)


class mm_status(c_int32):
    """A type of its own, so that a status is told from a count."""


MM_OK = 0
MM_ERR_ARG = 1
MM_ERR_MEMORY = 2
MM_ERR_IO = 3
MM_ERR_FORMAT = 4
MM_ERR_UNSUPPORTED = 5
MM_ERR_STATE = 6
MM_ERR_NUMERIC = 7
MM_ERR_CANCELLED = 8
MM_ERR_INTERNAL = 9
MM_LOG_ERROR = 0
MM_LOG_WARNING = 1
MM_LOG_INFO = 2
MM_LOG_DEBUG = 3
MM_F32 = 0
MM_BF16 = 1
MM_F16 = 2
MM_I32 = 3
MM_I64 = 4
MM_Q8_0 = 5
MM_Q4_0 = 6
MM_TYPE_INT = 0
MM_TYPE_FLOAT = 1
MM_TYPE_BOOL = 2
MM_TYPE_STRING = 3
MM_MODULE_EMBEDDING = 0
MM_MODULE_ATTENTION = 1
MM_MODULE_MLP_DENSE = 2
MM_MODULE_MOE_ROUTER = 3
MM_MODULE_MOE_EXPERTS = 4
MM_MODULE_MOE_SHARED_EXPERTS = 5
MM_MODULE_MOE_SCALARS = 6
MM_MODULE_LAYER_NORMS = 7
MM_MODULE_FINAL_NORM = 8
MM_MODULE_LM_HEAD = 9
MM_EVAL = 0
MM_TRAIN = 1
MM_OUT_LOSS = 1
MM_OUT_LOGPROBS = 2
MM_OUT_LAST_LOGITS = 4
MM_OUT_LOGITS = 8
MM_OUT_HIDDEN = 16
MM_FINISH_LENGTH = 0
MM_FINISH_STOP = 1
MM_FINISH_CALLBACK = 2
MM_SPLIT_ALL = 0
MM_SPLIT_NO_SPECIAL = 1
MM_SPLIT_NONE = 2
MM_THINK_DEFAULT = 0
MM_THINK_ON = 1
MM_THINK_OFF = 2
MM_REPLY_OPEN_REASONING = 1
MM_REPLY_OPEN_CALL = 2
MM_REPLY_BAD_CALL = 4
MM_SIDE_ALL = 0
MM_SIDE_TRAIN = 1
MM_SIDE_VALIDATION = 2
MM_ROW_TEXT = 0
MM_ROW_CHAT = 1
MM_ROW_PREFERENCE = 2
MM_ROW_PROMPT = 3
MM_ROWS_PAD = 0
MM_ROWS_PAD3 = 1
MM_ROWS_PACK = 2
MM_REMARK_ROLES = 1
MM_REMARK_CUT = 2
MM_REMARK_UNLEARNT = 4
MM_REDUCE_SUM = 0
MM_REDUCE_MEAN = 1
MM_POLICY_GRPO = 0
MM_POLICY_CISPO = 1
MM_POLICY_PPO = 2
MM_DECAY_ALL = 0
MM_DECAY_MATRICES = 1
MM_SCHEDULE_CONSTANT = 0
MM_SCHEDULE_MINIMIND2 = 1
MM_SCHEDULE_MINIMIND3 = 2
MM_SCHEDULE_COSINE = 3
MM_SCHEDULE_LINEAR = 4
MM_SCHEDULE_WSD = 5
MM_REPORT_METRICS = 1
MM_REPORT_TENSORBOARD = 2
MM_REPORT_PAGE = 4
MM_REPORT_ALL = 7
MM_STAGE_PLAIN = 0
MM_STAGE_POLICY = 1
MM_STAGE_DPO = 2
MM_STAGE_DISTILL = 3
MM_OPTIMIZER_ADAMW = 0
MM_OPTIMIZER_MUON = 1


class mm_allocator(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user", c_void_p),
        ("allocate", CFUNCTYPE(c_void_p, c_void_p, c_size_t)),
        ("release", CFUNCTYPE(None, c_void_p, c_void_p)),
    ]


class mm_memory_usage(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("current", c_uint64),
        ("peak", c_uint64),
        ("count", c_uint64),
    ]


mm_log_fn = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class mm_view(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * 4),
        ("strides", c_int64 * 4),
        ("reserved", c_uint64 * 2),
    ]


class mm_config(Structure):
    """Opaque."""


class mm_config_key(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("description", c_char_p),
        ("minimum", c_double),
        ("maximum", c_double),
        ("type", c_int64),
    ]


class mm_model(Structure):
    """Opaque."""


class mm_load_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("map", c_int32),
        ("keep_dtype", c_int32),
    ]


class mm_adapter(Structure):
    """Opaque."""


class mm_adapter_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("targets", c_char_p),
        ("seed", c_uint64),
        ("alpha", c_double),
        ("dropout", c_double),
        ("rank", c_int32),
        ("reserved", c_int32),
    ]


class mm_param_count(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("total", c_int64),
        ("active", c_int64),
        ("embedding", c_int64),
        ("attention", c_int64),
        ("mlp_dense", c_int64),
        ("moe_router", c_int64),
        ("moe_experts", c_int64),
        ("moe_shared_experts", c_int64),
        ("moe_scalars", c_int64),
        ("layer_norms", c_int64),
        ("final_norm", c_int64),
        ("lm_head", c_int64),
    ]


class mm_tensor_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 128),
        ("shape", c_int64 * 4),
        ("elements", c_int64),
        ("rank", c_int32),
        ("module", c_int32),
        ("layer", c_int32),
        ("expert", c_int32),
    ]


class mm_workload(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("mode", c_int32),
        ("max_batch", c_int32),
        ("max_length", c_int32),
        ("max_context", c_int32),
        ("outputs", c_int32),
        ("threads", c_int32),
        ("optimizer", c_int32),
        ("cache_sequences", c_int32),
        ("cache_capacity", c_int32),
        ("weights_mapped", c_int32),
        ("checkpointing", c_int32),
        ("dtype", c_int32),
        ("kernels", c_char_p),
        ("cache_dtype", c_int32),
        ("reserved", c_int32),
        ("adapter", POINTER(mm_adapter_options)),
        ("trainable", c_char_p),
    ]


class mm_memory(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("weights", c_int64),
        ("gradients", c_int64),
        ("optimizer", c_int64),
        ("activations", c_int64),
        ("cache", c_int64),
        ("handles", c_int64),
        ("total", c_int64),
        ("cache_per_token", c_int64),
        ("adapter", c_int64),
    ]


class mm_flops(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("forward", c_double),
        ("backward", c_double),
        ("total", c_double),
        ("attention", c_double),
    ]


class mm_context(Structure):
    """Opaque."""


class mm_cache(Structure):
    """Opaque."""


mm_piece_fn = CFUNCTYPE(None, c_void_p, c_int64, c_int32)


mm_parallel_for_fn = CFUNCTYPE(None, c_void_p, c_int64, mm_piece_fn, c_void_p)


class mm_context_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("mode", c_int32),
        ("max_batch", c_int32),
        ("max_length", c_int32),
        ("max_context", c_int32),
        ("outputs", c_int32),
        ("threads", c_int32),
        ("checkpointing", c_int32),
        ("router_noise", c_float),
        ("kernels", c_char_p),
        ("parallel_for", mm_parallel_for_fn),
        ("parallel_for_user", c_void_p),
        ("adapter", POINTER(mm_adapter)),
        ("trainable", c_char_p),
        ("compute", c_int32),
        ("reserved", c_int32),
    ]


class mm_batch(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("ids", POINTER(c_int32)),
        ("targets", POINTER(c_int32)),
        ("attention_mask", POINTER(c_int32)),
        ("position_ids", POINTER(c_int32)),
        ("document_ids", POINTER(c_int32)),
        ("cache", POINTER(mm_cache)),
        ("batch", c_int32),
        ("length", c_int32),
        ("mode", c_int32),
        ("outputs", c_int32),
        ("seed", c_uint64),
    ]


class mm_output(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("loss", c_double),
        ("loss_sum", c_double),
        ("loss_count", c_int64),
        ("aux_loss", c_double),
        ("logprobs", mm_view),
        ("last_logits", mm_view),
        ("logits", mm_view),
        ("hidden", mm_view),
    ]


mm_gradients_fn = CFUNCTYPE(None, c_void_p, c_int64, c_int64)


class mm_backward_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("loss_scale", c_double),
        ("aux_scale", c_double),
        ("normalizer", c_double),
        ("d_logits", POINTER(c_float)),
        ("d_logprobs", POINTER(c_float)),
        ("d_hidden", POINTER(c_float)),
        ("on_gradients", mm_gradients_fn),
        ("user", c_void_p),
    ]


class mm_sampling(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("seed", c_uint64),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("top_k", c_int64),
    ]


mm_token_fn = CFUNCTYPE(c_int32, c_void_p, c_int32, c_int32, c_float)


mm_logits_fn = CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(c_int32), c_int32, POINTER(c_float), c_int32)


class mm_generate_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompts", POINTER(POINTER(c_int32))),
        ("prompt_lengths", POINTER(c_int32)),
        ("stop_ids", POINTER(c_int32)),
        ("sampling", POINTER(mm_sampling)),
        ("cache", POINTER(mm_cache)),
        ("on_token", mm_token_fn),
        ("user", c_void_p),
        ("sequences", c_int32),
        ("stop_count", c_int32),
        ("max_new_tokens", c_int32),
        ("cache_dtype", c_int32),
        ("on_logits", mm_logits_fn),
    ]


class mm_generate_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("ids", POINTER(c_int32)),
        ("logprobs", POINTER(c_float)),
        ("lengths", POINTER(c_int32)),
        ("finish", POINTER(c_int32)),
        ("stride", c_int64),
        ("stops", POINTER(c_int32)),
        ("stop_logprobs", POINTER(c_float)),
    ]


class mm_tokenizer(Structure):
    """Opaque."""


class mm_decoder(Structure):
    """Opaque."""


mm_text_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(c_char_p), POINTER(c_size_t))


mm_progress_fn = CFUNCTYPE(c_int32, c_void_p, c_int64, c_int64)


class mm_tokenizer_train_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("next_text", mm_text_fn),
        ("on_progress", mm_progress_fn),
        ("user", c_void_p),
        ("special_tokens", POINTER(c_char_p)),
        ("special_count", c_int32),
        ("vocab_size", c_int32),
        ("min_frequency", c_int64),
    ]


class mm_chat(Structure):
    """Opaque."""


class mm_chat_reply(Structure):
    """Opaque."""


class mm_chat_roles(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("begin", c_char_p),
        ("default_system", c_char_p),
        ("system_prefix", c_char_p),
        ("system_suffix", c_char_p),
        ("user_prefix", c_char_p),
        ("user_suffix", c_char_p),
        ("assistant_prefix", c_char_p),
        ("assistant_suffix", c_char_p),
        ("tool_prefix", c_char_p),
        ("tool_suffix", c_char_p),
        ("generation_prompt", c_char_p),
    ]


class mm_chat_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("template_name", c_char_p),
        ("roles", POINTER(mm_chat_roles)),
        ("add_generation_prompt", c_int32),
        ("thinking", c_int32),
        ("content_split", c_int32),
        ("reserved", c_int32),
    ]


class mm_tool_call(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("arguments", c_char_p),
        ("raw", c_char_p),
        ("problem", c_char_p),
        ("name_length", c_size_t),
        ("arguments_length", c_size_t),
        ("raw_length", c_size_t),
        ("status", c_int64),
    ]


class mm_dataset(Structure):
    """Opaque."""


class mm_loader(Structure):
    """Opaque."""


class mm_dataset_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("paths", POINTER(c_char_p)),
        ("weights", POINTER(c_double)),
        ("max_rows", POINTER(c_int64)),
        ("index_directory", c_char_p),
        ("validation", c_double),
        ("cache_from", c_int64),
        ("max_line", c_int64),
        ("count", c_int32),
        ("side", c_int32),
    ]


class mm_loader_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("seed", c_uint64),
        ("batch", c_int32),
        ("max_length", c_int32),
        ("form", c_int32),
        ("shuffle", c_int32),
        ("skip_bad_lines", c_int32),
        ("bos_id", c_int32),
        ("eos_id", c_int32),
        ("pad_id", c_int32),
        ("template_name", c_char_p),
        ("kind", c_int32),
        ("strip_empty_think", c_int32),
        ("thinking", c_int32),
        ("rank", c_int32),
        ("world", c_int32),
        ("workers", c_int32),
        ("mixed_prompts", c_int32),
        ("trim", c_int32),
    ]


class mm_prompts(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("ids", POINTER(POINTER(c_int32))),
        ("lengths", POINTER(c_int32)),
        ("answers", POINTER(c_char_p)),
        ("answer_lengths", POINTER(c_size_t)),
        ("rows", POINTER(c_int64)),
        ("count", c_int32),
        ("at_end", c_int32),
    ]


class mm_loader_position(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("epoch", c_int64),
        ("row", c_int64),
        ("offset", c_int64),
        ("skipped", c_int64),
    ]


class mm_loader_stats(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("elapsed_seconds", c_double),
        ("wait_seconds", c_double),
        ("call_seconds", c_double),
        ("batches", c_int64),
        ("rows", c_int64),
        ("tokens", c_int64),
        ("bad_lines", c_int64),
    ]


class mm_row_report(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tokens", c_int64),
        ("learnt", c_int64),
        ("remarks", c_int64),
    ]


class mm_dpo_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("beta", c_double),
        ("reduction", c_int32),
        ("reserved", c_int32),
    ]


class mm_dpo_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("loss", c_double),
        ("accuracy", c_double),
        ("margin", c_double),
    ]


class mm_distill_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("alpha", c_double),
        ("temperature", c_double),
    ]


class mm_distill_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("total", c_double),
        ("cross_entropy", c_double),
        ("kl", c_double),
        ("count", c_int64),
    ]


class mm_policy_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("beta", c_double),
        ("epsilon", c_double),
        ("epsilon_high", c_double),
        ("variant", c_int32),
        ("reserved", c_int32),
    ]


class mm_policy_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("loss", c_double),
        ("mean_kl", c_double),
        ("clipped", c_double),
    ]


class mm_gae_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("gamma", c_double),
        ("lambda", c_double),
        ("normalize", c_int32),
        ("reserved", c_int32),
    ]


class mm_ppo_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("epsilon", c_double),
        ("value_clip", c_double),
        ("value_weight", c_double),
        ("beta", c_double),
    ]


class mm_ppo_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("loss", c_double),
        ("policy_loss", c_double),
        ("value_loss", c_double),
        ("mean_kl", c_double),
        ("step_kl", c_double),
        ("clipped", c_double),
        ("value_clipped", c_double),
    ]


class mm_optimizer(Structure):
    """Opaque."""


class mm_adamw_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("trainable", c_char_p),
        ("decay", c_int32),
        ("reserved", c_int32),
    ]


class mm_muon_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("momentum", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("trainable", c_char_p),
        ("decay", c_int32),
        ("reserved", c_int32),
    ]


class mm_step(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("learning_rate", c_double),
        ("max_grad_norm", c_double),
        ("grad_norm", c_double),
    ]


class mm_answer(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt", c_char_p),
        ("text", c_char_p),
        ("reference", c_char_p),
        ("ids", POINTER(c_int32)),
        ("prompt_length", c_size_t),
        ("text_length", c_size_t),
        ("reference_length", c_size_t),
        ("count", c_int64),
        ("row", c_int64),
        ("sample", c_int32),
        ("finish", c_int32),
    ]


mm_reward_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(mm_answer), POINTER(c_double))


class mm_policy_training(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("reward", mm_reward_fn),
        ("user", c_void_p),
        ("reference", POINTER(mm_model)),
        ("beta", c_double),
        ("epsilon", c_double),
        ("epsilon_high", c_double),
        ("gamma", c_double),
        ("lambda", c_double),
        ("value_clip", c_double),
        ("value_weight", c_double),
        ("value_rate", c_double),
        ("temperature", c_float),
        ("top_p", c_float),
        ("variant", c_int32),
        ("group", c_int32),
        ("max_new_tokens", c_int32),
        ("updates", c_int32),
    ]


class mm_value_head(Structure):
    """Opaque."""


mm_comm_reduce_fn = CFUNCTYPE(mm_status, c_void_p, POINTER(c_float), c_int64)


mm_comm_reduce_f64_fn = CFUNCTYPE(mm_status, c_void_p, POINTER(c_double), c_int64)


mm_comm_broadcast_fn = CFUNCTYPE(mm_status, c_void_p, c_void_p, c_size_t, c_int32)


mm_comm_barrier_fn = CFUNCTYPE(mm_status, c_void_p)


mm_comm_abort_fn = CFUNCTYPE(mm_status, c_void_p, c_char_p)


class mm_comm(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("user", c_void_p),
        ("rank", c_int32),
        ("size", c_int32),
        ("all_reduce", mm_comm_reduce_fn),
        ("all_reduce_f64", mm_comm_reduce_f64_fn),
        ("broadcast", mm_comm_broadcast_fn),
        ("barrier", mm_comm_barrier_fn),
        ("abort", mm_comm_abort_fn),
    ]


class mm_comm_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("connect_seconds", c_double),
        ("timeout_seconds", c_double),
    ]


class mm_report(Structure):
    """Opaque."""


class mm_report_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("title", c_char_p),
        ("resume_step", c_int64),
        ("total_steps", c_int64),
        ("outputs", c_int32),
        ("reserved", c_int32),
    ]


class mm_evaluation(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("loss", c_double),
        ("perplexity", c_double),
        ("bits_per_byte", c_double),
        ("loss_sum", c_double),
        ("tokens", c_int64),
        ("bytes", c_int64),
        ("batches", c_int64),
    ]


class mm_evaluate_text_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("overlap", c_int32),
        ("bos_id", c_int32),
    ]


class mm_choice(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("row", c_int64),
        ("sums", POINTER(c_double)),
        ("per_byte", POINTER(c_double)),
        ("count", c_int32),
        ("answer", c_int32),
        ("picked", c_int32),
        ("picked_per_byte", c_int32),
    ]


mm_choice_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(mm_choice))


class mm_choices_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("on_row", mm_choice_fn),
        ("user", c_void_p),
        ("max_rows", c_int64),
        ("bos_id", c_int32),
        ("reserved", c_int32),
    ]


class mm_choices_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("accuracy", c_double),
        ("accuracy_per_byte", c_double),
        ("rows", c_int64),
        ("correct", c_int64),
        ("correct_per_byte", c_int64),
        ("cut", c_int64),
    ]


class mm_prompt_answer(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("row", c_int64),
        ("prompt", c_char_p),
        ("answer", c_char_p),
        ("answer_length", c_size_t),
        ("missing", c_char_p),
        ("tokens", c_int64),
        ("passed", c_int32),
        ("finish", c_int32),
    ]


mm_prompt_answer_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(mm_prompt_answer))


class mm_prompts_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("on_row", mm_prompt_answer_fn),
        ("user", c_void_p),
        ("template_name", c_char_p),
        ("report", POINTER(mm_report)),
        ("step", c_int64),
        ("max_rows", c_int64),
        ("max_new_tokens", c_int32),
        ("bos_id", c_int32),
        ("thinking", c_int32),
        ("reserved", c_int32),
    ]


class mm_prompts_result(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rows", c_int64),
        ("passed", c_int64),
        ("tokens", c_int64),
        ("cut", c_int64),
    ]


class mm_trainer(Structure):
    """Opaque."""


class mm_train_metric(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_double),
    ]


class mm_train_progress(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("step", c_int64),
        ("total_steps", c_int64),
        ("epoch", c_int64),
        ("epoch_step", c_int64),
        ("epoch_steps", c_int64),
        ("updates", c_int64),
        ("tokens", c_int64),
        ("skipped_lines", c_int64),
        ("loss", c_double),
        ("learning_rate", c_double),
        ("grad_norm", c_double),
        ("tokens_per_s", c_double),
        ("seconds_left", c_double),
        ("metrics", POINTER(mm_train_metric)),
        ("metric_count", c_int64),
        ("skipped_steps", c_int64),
        ("evaluations", c_int64),
        ("validation_loss", c_double),
        ("validation_metrics", POINTER(mm_train_metric)),
        ("best_loss", c_double),
        ("best_step", c_int64),
        ("loss_scale", c_double),
        ("expert_load", POINTER(c_double)),
        ("expert_layers", c_int64),
        ("experts", c_int64),
        ("evaluated_step", c_int64),
    ]


mm_train_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(mm_train_progress))


class mm_trainer_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("output", c_char_p),
        ("on_step", mm_train_fn),
        ("user", c_void_p),
        ("learning_rate", c_double),
        ("max_grad_norm", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("max_seconds", c_double),
        ("epochs", c_int64),
        ("max_steps", c_int64),
        ("accumulation_steps", c_int64),
        ("warmup_steps", c_int64),
        ("save_interval", c_int64),
        ("log_interval", c_int64),
        ("schedule", c_int32),
        ("keep_last", c_int32),
        ("threads", c_int32),
        ("stage", c_int32),
        ("kernels", c_char_p),
        ("policy", POINTER(mm_policy_training)),
        ("comm", POINTER(mm_comm)),
        ("validation", POINTER(mm_loader)),
        ("dpo", POINTER(mm_dpo_options)),
        ("distill", POINTER(mm_distill_options)),
        ("reference", POINTER(mm_model)),
        ("teacher", POINTER(mm_model)),
        ("teacher_cache", c_char_p),
        ("eval_interval", c_int64),
        ("eval_batches", c_int64),
        ("patience", c_int64),
        ("min_delta", c_double),
        ("max_skips", c_int64),
        ("spike_factor", c_double),
        ("decay_part", c_double),
        ("loss_scale", c_double),
        ("loss_scale_interval", c_int64),
        ("keep_best", c_int32),
        ("background_save", c_int32),
        ("adapter", POINTER(mm_adapter)),
        ("momentum", c_double),
        ("optimizer", c_int32),
        ("compute", c_int32),
    ]


class mm_samples_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompts", POINTER(c_char_p)),
        ("sampling", POINTER(mm_sampling)),
        ("template_name", c_char_p),
        ("count", c_int32),
        ("max_new_tokens", c_int32),
        ("bos_id", c_int32),
        ("chat", c_int32),
        ("thinking", c_int32),
        ("reserved", c_int32),
    ]


# name: (result, arguments)
FUNCTIONS = {
    "mm_status_name": (c_char_p, [mm_status]),
    "mm_last_error": (c_char_p, []),
    "mm_set_last_error": (mm_status, [mm_status, c_char_p]),
    "mm_version": (c_uint32, []),
    "mm_version_string": (c_char_p, []),
    "mm_set_allocator": (mm_status, [POINTER(mm_allocator)]),
    "mm_memory_usage_init": (None, [POINTER(mm_memory_usage), c_size_t]),
    "mm_memory_get_usage": (mm_status, [POINTER(mm_memory_usage)]),
    "mm_memory_reset_peak": (None, []),
    "mm_set_log": (None, [mm_log_fn, c_void_p, c_int32]),
    "mm_dtype_size": (c_size_t, [c_int32]),
    "mm_dtype_name": (c_char_p, [c_int32]),
    "mm_config_create": (mm_status, [c_char_p, POINTER(POINTER(mm_config))]),
    "mm_config_load": (mm_status, [c_char_p, POINTER(POINTER(mm_config))]),
    "mm_config_load_memory": (mm_status, [c_char_p, c_size_t, POINTER(POINTER(mm_config))]),
    "mm_config_save": (mm_status, [POINTER(mm_config), c_char_p]),
    "mm_config_copy": (mm_status, [POINTER(mm_config), POINTER(POINTER(mm_config))]),
    "mm_config_free": (None, [POINTER(mm_config)]),
    "mm_config_validate": (mm_status, [POINTER(mm_config)]),
    "mm_config_set_int": (mm_status, [POINTER(mm_config), c_char_p, c_int64]),
    "mm_config_set_float": (mm_status, [POINTER(mm_config), c_char_p, c_double]),
    "mm_config_set_bool": (mm_status, [POINTER(mm_config), c_char_p, c_int32]),
    "mm_config_set_string": (mm_status, [POINTER(mm_config), c_char_p, c_char_p]),
    "mm_config_unset": (mm_status, [POINTER(mm_config), c_char_p]),
    "mm_config_get_int": (mm_status, [POINTER(mm_config), c_char_p, POINTER(c_int64)]),
    "mm_config_get_float": (mm_status, [POINTER(mm_config), c_char_p, POINTER(c_double)]),
    "mm_config_get_bool": (mm_status, [POINTER(mm_config), c_char_p, POINTER(c_int32)]),
    "mm_config_get_string": (mm_status, [POINTER(mm_config), c_char_p, POINTER(c_char), c_size_t, POINTER(c_size_t)]),
    "mm_config_key_init": (None, [POINTER(mm_config_key), c_size_t]),
    "mm_config_key_count": (c_int32, []),
    "mm_config_key_get": (mm_status, [c_int32, POINTER(mm_config_key)]),
    "mm_preset_count": (c_int32, []),
    "mm_preset_name": (c_char_p, [c_int32]),
    "mm_model_create": (mm_status, [POINTER(mm_config), c_uint64, POINTER(POINTER(mm_model))]),
    "mm_load_options_init": (None, [POINTER(mm_load_options), c_size_t]),
    "mm_model_load": (mm_status, [c_char_p, POINTER(mm_load_options), POINTER(POINTER(mm_model))]),
    "mm_model_load_memory": (mm_status, [POINTER(mm_config), c_void_p, c_size_t, POINTER(POINTER(mm_model))]),
    "mm_model_save": (mm_status, [POINTER(mm_model), c_char_p]),
    "mm_model_copy": (mm_status, [POINTER(mm_model), POINTER(POINTER(mm_model))]),
    "mm_model_cast": (mm_status, [POINTER(mm_model), c_int32, POINTER(POINTER(mm_model))]),
    "mm_model_quantize": (mm_status, [POINTER(mm_model), c_int32, POINTER(POINTER(mm_model))]),
    "mm_model_free": (None, [POINTER(mm_model)]),
    "mm_model_config": (POINTER(mm_config), [POINTER(mm_model)]),
    "mm_model_tensor_count": (c_int64, [POINTER(mm_model)]),
    "mm_model_tensor": (mm_status, [POINTER(mm_model), c_int64, POINTER(mm_view)]),
    "mm_model_find": (mm_status, [POINTER(mm_model), c_char_p, POINTER(mm_view)]),
    "mm_model_write": (mm_status, [POINTER(mm_model), c_int64, POINTER(mm_view)]),
    "mm_model_written": (None, [POINTER(mm_model)]),
    "mm_adapter_options_init": (None, [POINTER(mm_adapter_options), c_size_t]),
    "mm_adapter_create": (mm_status, [POINTER(mm_model), POINTER(mm_adapter_options), POINTER(POINTER(mm_adapter))]),
    "mm_adapter_free": (None, [POINTER(mm_adapter)]),
    "mm_adapter_model": (POINTER(mm_model), [POINTER(mm_adapter)]),
    "mm_adapter_describe": (mm_status, [POINTER(mm_adapter), POINTER(mm_adapter_options)]),
    "mm_adapter_tensor_count": (c_int64, [POINTER(mm_adapter)]),
    "mm_adapter_count_params": (c_int64, [POINTER(mm_adapter)]),
    "mm_adapter_name": (mm_status, [POINTER(mm_adapter), c_int64, POINTER(c_char), c_size_t, POINTER(c_size_t)]),
    "mm_adapter_tensor": (mm_status, [POINTER(mm_adapter), c_int64, POINTER(mm_view)]),
    "mm_adapter_find": (mm_status, [POINTER(mm_adapter), c_char_p, POINTER(mm_view)]),
    "mm_adapter_write": (mm_status, [POINTER(mm_adapter), c_int64, POINTER(mm_view)]),
    "mm_adapter_written": (None, [POINTER(mm_adapter)]),
    "mm_adapter_load": (mm_status, [POINTER(mm_model), c_char_p, POINTER(POINTER(mm_adapter))]),
    "mm_adapter_save": (mm_status, [POINTER(mm_adapter), c_char_p]),
    "mm_adapter_merge": (mm_status, [
        POINTER(mm_model),
        POINTER(POINTER(mm_adapter)),
        POINTER(c_float),
        c_int32,
        POINTER(POINTER(mm_model)),
    ]),
    "mm_param_count_init": (None, [POINTER(mm_param_count), c_size_t]),
    "mm_count_params": (mm_status, [POINTER(mm_config), POINTER(mm_param_count)]),
    "mm_tensor_info_init": (None, [POINTER(mm_tensor_info), c_size_t]),
    "mm_layout_count": (mm_status, [POINTER(mm_config), POINTER(c_int64)]),
    "mm_layout_get": (mm_status, [POINTER(mm_config), c_int64, POINTER(mm_tensor_info)]),
    "mm_workload_init": (None, [POINTER(mm_workload), c_size_t]),
    "mm_memory_init": (None, [POINTER(mm_memory), c_size_t]),
    "mm_estimate_memory": (mm_status, [POINTER(mm_config), POINTER(mm_workload), POINTER(mm_memory)]),
    "mm_flops_init": (None, [POINTER(mm_flops), c_size_t]),
    "mm_estimate_flops": (mm_status, [POINTER(mm_config), POINTER(mm_workload), POINTER(mm_flops)]),
    "mm_context_options_init": (None, [POINTER(mm_context_options), c_size_t]),
    "mm_kernels_count": (c_int32, []),
    "mm_kernels_name": (c_char_p, [c_int32]),
    "mm_context_create": (mm_status, [POINTER(mm_model), POINTER(mm_context_options), POINTER(POINTER(mm_context))]),
    "mm_context_free": (None, [POINTER(mm_context)]),
    "mm_context_model": (POINTER(mm_model), [POINTER(mm_context)]),
    "mm_context_set_adapters": (mm_status, [
        POINTER(mm_context),
        POINTER(POINTER(mm_adapter)),
        POINTER(c_float),
        c_int32,
    ]),
    "mm_context_kernels": (c_char_p, [POINTER(mm_context)]),
    "mm_cancel": (None, [POINTER(mm_context)]),
    "mm_batch_init": (None, [POINTER(mm_batch), c_size_t]),
    "mm_output_init": (None, [POINTER(mm_output), c_size_t]),
    "mm_forward": (mm_status, [POINTER(mm_context), POINTER(mm_batch), POINTER(mm_output)]),
    "mm_expert_load": (mm_status, [POINTER(mm_context), c_int64, POINTER(c_double), c_size_t, POINTER(c_size_t)]),
    "mm_backward_options_init": (None, [POINTER(mm_backward_options), c_size_t]),
    "mm_backward": (mm_status, [POINTER(mm_context), POINTER(mm_backward_options)]),
    "mm_zero_grad": (mm_status, [POINTER(mm_context)]),
    "mm_grad": (mm_status, [POINTER(mm_context), c_int64, POINTER(mm_view)]),
    "mm_grad_add": (mm_status, [POINTER(mm_context), POINTER(mm_context), c_double]),
    "mm_grad_norm": (mm_status, [POINTER(mm_context), POINTER(c_double)]),
    "mm_cache_create": (mm_status, [POINTER(mm_model), c_int32, c_int32, c_int32, POINTER(POINTER(mm_cache))]),
    "mm_cache_free": (None, [POINTER(mm_cache)]),
    "mm_cache_length": (c_int32, [POINTER(mm_cache), c_int32]),
    "mm_cache_sequences": (c_int32, [POINTER(mm_cache)]),
    "mm_cache_capacity": (c_int32, [POINTER(mm_cache)]),
    "mm_cache_dtype": (c_int32, [POINTER(mm_cache)]),
    "mm_cache_truncate": (mm_status, [POINTER(mm_cache), c_int32, c_int32]),
    "mm_cache_fork": (mm_status, [POINTER(mm_cache), c_int32, POINTER(mm_cache), c_int32, c_int32]),
    "mm_cache_save": (mm_status, [POINTER(mm_cache), c_char_p]),
    "mm_cache_load": (mm_status, [POINTER(mm_model), c_char_p, POINTER(POINTER(mm_cache))]),
    "mm_sampling_init": (None, [POINTER(mm_sampling), c_size_t]),
    "mm_generate_options_init": (None, [POINTER(mm_generate_options), c_size_t]),
    "mm_generate_result_init": (None, [POINTER(mm_generate_result), c_size_t]),
    "mm_generate": (mm_status, [POINTER(mm_context), POINTER(mm_generate_options), POINTER(mm_generate_result)]),
    "mm_tokenizer_load": (mm_status, [c_char_p, POINTER(POINTER(mm_tokenizer))]),
    "mm_tokenizer_load_memory": (mm_status, [c_char_p, c_size_t, POINTER(POINTER(mm_tokenizer))]),
    "mm_tokenizer_save": (mm_status, [POINTER(mm_tokenizer), c_char_p]),
    "mm_tokenizer_free": (None, [POINTER(mm_tokenizer)]),
    "mm_tokenizer_vocab_size": (c_int32, [POINTER(mm_tokenizer)]),
    "mm_tokenizer_find": (c_int32, [POINTER(mm_tokenizer), c_char_p]),
    "mm_tokenizer_is_special": (c_int32, [POINTER(mm_tokenizer), c_int32]),
    "mm_encode": (mm_status, [
        POINTER(mm_tokenizer),
        c_char_p,
        c_size_t,
        c_int32,
        POINTER(c_int32),
        c_size_t,
        POINTER(c_size_t),
    ]),
    "mm_encode_batch": (mm_status, [
        POINTER(mm_tokenizer),
        POINTER(c_char_p),
        POINTER(c_size_t),
        c_size_t,
        c_int32,
        c_int32,
        POINTER(c_int32),
        c_size_t,
        POINTER(c_size_t),
    ]),
    "mm_token_offsets": (mm_status, [POINTER(mm_tokenizer), POINTER(c_int32), c_size_t, POINTER(c_size_t)]),
    "mm_decode": (mm_status, [
        POINTER(mm_tokenizer),
        POINTER(c_int32),
        c_size_t,
        c_int32,
        POINTER(c_char),
        c_size_t,
        POINTER(c_size_t),
    ]),
    "mm_decode_bytes": (mm_status, [
        POINTER(mm_tokenizer),
        POINTER(c_int32),
        c_size_t,
        c_int32,
        POINTER(c_char),
        c_size_t,
        POINTER(c_size_t),
    ]),
    "mm_decoder_create": (mm_status, [POINTER(mm_tokenizer), c_int32, POINTER(POINTER(mm_decoder))]),
    "mm_decoder_free": (None, [POINTER(mm_decoder)]),
    "mm_decoder_push": (mm_status, [POINTER(mm_decoder), c_int32, POINTER(c_char_p), POINTER(c_size_t)]),
    "mm_decoder_flush": (mm_status, [POINTER(mm_decoder), POINTER(c_char_p), POINTER(c_size_t)]),
    "mm_tokenizer_train_options_init": (None, [POINTER(mm_tokenizer_train_options), c_size_t]),
    "mm_tokenizer_train": (mm_status, [POINTER(mm_tokenizer_train_options), POINTER(POINTER(mm_tokenizer))]),
    "mm_chat_roles_init": (None, [POINTER(mm_chat_roles), c_size_t]),
    "mm_chat_options_init": (None, [POINTER(mm_chat_options), c_size_t]),
    "mm_chat_create": (mm_status, [POINTER(POINTER(mm_chat))]),
    "mm_chat_free": (None, [POINTER(mm_chat)]),
    "mm_chat_add": (mm_status, [POINTER(mm_chat), c_char_p, c_char_p, c_size_t]),
    "mm_chat_add_json": (mm_status, [POINTER(mm_chat), c_char_p, c_size_t]),
    "mm_chat_set_tools_json": (mm_status, [POINTER(mm_chat), c_char_p, c_size_t]),
    "mm_chat_count": (c_size_t, [POINTER(mm_chat)]),
    "mm_chat_remove": (mm_status, [POINTER(mm_chat), c_size_t, c_size_t]),
    "mm_chat_truncate": (mm_status, [POINTER(mm_chat), c_size_t]),
    "mm_chat_write_json": (mm_status, [POINTER(mm_chat), POINTER(c_char), c_size_t, POINTER(c_size_t)]),
    "mm_chat_template_name": (mm_status, [POINTER(mm_tokenizer), POINTER(c_char_p)]),
    "mm_chat_format": (mm_status, [
        POINTER(mm_chat),
        POINTER(mm_tokenizer),
        POINTER(mm_chat_options),
        POINTER(c_char),
        c_size_t,
        POINTER(c_size_t),
    ]),
    "mm_chat_encode": (mm_status, [
        POINTER(mm_chat),
        POINTER(mm_tokenizer),
        POINTER(mm_chat_options),
        POINTER(c_int32),
        c_size_t,
        POINTER(c_size_t),
    ]),
    "mm_tool_call_init": (None, [POINTER(mm_tool_call), c_size_t]),
    "mm_chat_parse": (mm_status, [c_char_p, c_size_t, c_int32, POINTER(POINTER(mm_chat_reply))]),
    "mm_chat_reply_free": (None, [POINTER(mm_chat_reply)]),
    "mm_chat_reply_content": (POINTER(c_char), [POINTER(mm_chat_reply), POINTER(c_size_t)]),
    "mm_chat_reply_reasoning": (POINTER(c_char), [POINTER(mm_chat_reply), POINTER(c_size_t)]),
    "mm_chat_reply_flags": (c_int32, [POINTER(mm_chat_reply)]),
    "mm_chat_reply_call_count": (c_size_t, [POINTER(mm_chat_reply)]),
    "mm_chat_reply_call": (mm_status, [POINTER(mm_chat_reply), c_size_t, POINTER(mm_tool_call)]),
    "mm_chat_reply_json": (POINTER(c_char), [POINTER(mm_chat_reply), POINTER(c_size_t)]),
    "mm_dataset_options_init": (None, [POINTER(mm_dataset_options), c_size_t]),
    "mm_dataset_create": (mm_status, [POINTER(mm_dataset_options), POINTER(POINTER(mm_dataset))]),
    "mm_dataset_open": (mm_status, [c_char_p, POINTER(POINTER(mm_dataset))]),
    "mm_dataset_free": (None, [POINTER(mm_dataset)]),
    "mm_dataset_rows": (c_int64, [POINTER(mm_dataset)]),
    "mm_dataset_text": (mm_status, [POINTER(mm_dataset), c_int64, POINTER(c_char), c_size_t, POINTER(c_size_t)]),
    "mm_dataset_line": (mm_status, [POINTER(mm_dataset), c_int64, POINTER(c_char), c_size_t, POINTER(c_size_t)]),
    "mm_dataset_where": (mm_status, [POINTER(mm_dataset), c_int64, POINTER(c_char_p), POINTER(c_int64)]),
    "mm_loader_options_init": (None, [POINTER(mm_loader_options), c_size_t]),
    "mm_loader_create": (mm_status, [
        POINTER(mm_dataset),
        POINTER(mm_tokenizer),
        POINTER(mm_loader_options),
        POINTER(POINTER(mm_loader)),
    ]),
    "mm_loader_free": (None, [POINTER(mm_loader)]),
    "mm_loader_length": (c_int32, [POINTER(mm_loader)]),
    "mm_loader_next": (mm_status, [POINTER(mm_loader), POINTER(mm_batch)]),
    "mm_prompts_init": (None, [POINTER(mm_prompts), c_size_t]),
    "mm_loader_next_prompts": (mm_status, [POINTER(mm_loader), POINTER(mm_prompts)]),
    "mm_loader_position_init": (None, [POINTER(mm_loader_position), c_size_t]),
    "mm_loader_tell": (mm_status, [POINTER(mm_loader), POINTER(mm_loader_position)]),
    "mm_loader_seek": (mm_status, [POINTER(mm_loader), POINTER(mm_loader_position)]),
    "mm_loader_stats_init": (None, [POINTER(mm_loader_stats), c_size_t]),
    "mm_loader_get_stats": (mm_status, [POINTER(mm_loader), POINTER(mm_loader_stats)]),
    "mm_row_report_init": (None, [POINTER(mm_row_report), c_size_t]),
    "mm_loader_check_row": (mm_status, [POINTER(mm_loader), c_int64, POINTER(mm_row_report)]),
    "mm_sequence_scores": (mm_status, [
        POINTER(c_double),
        POINTER(c_float),
        POINTER(c_int32),
        c_int64,
        c_int64,
        c_int32,
    ]),
    "mm_dpo_options_init": (None, [POINTER(mm_dpo_options), c_size_t]),
    "mm_dpo_result_init": (None, [POINTER(mm_dpo_result), c_size_t]),
    "mm_dpo": (mm_status, [
        POINTER(mm_dpo_options),
        c_int64,
        c_int64,
        POINTER(c_float),
        POINTER(c_double),
        POINTER(c_int32),
        POINTER(c_float),
        POINTER(mm_dpo_result),
    ]),
    "mm_distill_options_init": (None, [POINTER(mm_distill_options), c_size_t]),
    "mm_distill_result_init": (None, [POINTER(mm_distill_result), c_size_t]),
    "mm_distill": (mm_status, [
        POINTER(mm_distill_options),
        c_int64,
        c_int64,
        c_int64,
        POINTER(c_float),
        POINTER(c_float),
        POINTER(c_int32),
        POINTER(c_float),
        POINTER(mm_distill_result),
    ]),
    "mm_group_advantages": (mm_status, [POINTER(c_double), POINTER(c_double), c_int64, c_int64]),
    "mm_policy_options_init": (None, [POINTER(mm_policy_options), c_size_t]),
    "mm_policy_result_init": (None, [POINTER(mm_policy_result), c_size_t]),
    "mm_policy_loss": (mm_status, [
        POINTER(mm_policy_options),
        c_int64,
        c_int64,
        POINTER(c_float),
        POINTER(c_float),
        POINTER(c_float),
        POINTER(c_int32),
        POINTER(c_double),
        POINTER(c_float),
        POINTER(mm_policy_result),
    ]),
    "mm_gae_options_init": (None, [POINTER(mm_gae_options), c_size_t]),
    "mm_gae": (mm_status, [
        POINTER(mm_gae_options),
        c_int64,
        c_int64,
        POINTER(c_double),
        POINTER(c_float),
        POINTER(c_int32),
        POINTER(c_double),
        POINTER(c_double),
    ]),
    "mm_ppo_options_init": (None, [POINTER(mm_ppo_options), c_size_t]),
    "mm_ppo_result_init": (None, [POINTER(mm_ppo_result), c_size_t]),
    "mm_ppo_loss": (mm_status, [
        POINTER(mm_ppo_options),
        c_int64,
        c_int64,
        POINTER(c_float),
        POINTER(c_float),
        POINTER(c_float),
        POINTER(c_float),
        POINTER(c_float),
        POINTER(c_int32),
        POINTER(c_double),
        POINTER(c_double),
        POINTER(c_float),
        POINTER(c_float),
        POINTER(mm_ppo_result),
    ]),
    "mm_reward_repetition": (mm_status, [POINTER(c_double), POINTER(c_int32), c_int64, c_int64]),
    "mm_adamw_options_init": (None, [POINTER(mm_adamw_options), c_size_t]),
    "mm_adamw_create": (mm_status, [POINTER(mm_model), POINTER(mm_adamw_options), POINTER(POINTER(mm_optimizer))]),
    "mm_adamw_create_adapter": (mm_status, [
        POINTER(mm_adapter),
        POINTER(mm_adamw_options),
        POINTER(POINTER(mm_optimizer)),
    ]),
    "mm_muon_options_init": (None, [POINTER(mm_muon_options), c_size_t]),
    "mm_muon_create": (mm_status, [POINTER(mm_model), POINTER(mm_muon_options), POINTER(POINTER(mm_optimizer))]),
    "mm_optimizer_free": (None, [POINTER(mm_optimizer)]),
    "mm_step_init": (None, [POINTER(mm_step), c_size_t]),
    "mm_optimizer_step": (mm_status, [POINTER(mm_optimizer), POINTER(mm_context), POINTER(mm_step)]),
    "mm_optimizer_steps": (c_int64, [POINTER(mm_optimizer)]),
    "mm_optimizer_save": (mm_status, [POINTER(mm_optimizer), c_char_p]),
    "mm_optimizer_load": (mm_status, [POINTER(mm_optimizer), c_char_p]),
    "mm_schedule_lr": (mm_status, [c_int32, c_int64, c_int64, c_int64, c_double, POINTER(c_double)]),
    "mm_schedule_wsd": (mm_status, [c_int64, c_int64, c_int64, c_double, c_double, POINTER(c_double)]),
    "mm_answer_init": (None, [POINTER(mm_answer), c_size_t]),
    "mm_policy_training_init": (None, [POINTER(mm_policy_training), c_size_t]),
    "mm_value_head_create": (mm_status, [
        POINTER(mm_model),
        POINTER(mm_adamw_options),
        POINTER(POINTER(mm_value_head)),
    ]),
    "mm_value_head_free": (None, [POINTER(mm_value_head)]),
    "mm_value_head_forward": (mm_status, [POINTER(mm_value_head), POINTER(mm_view), POINTER(c_float)]),
    "mm_value_head_backward": (mm_status, [
        POINTER(mm_value_head),
        POINTER(mm_view),
        POINTER(c_float),
        c_double,
        POINTER(c_float),
    ]),
    "mm_value_head_step": (mm_status, [POINTER(mm_value_head), POINTER(mm_step)]),
    "mm_value_head_zero_grad": (mm_status, [POINTER(mm_value_head)]),
    "mm_value_head_weights": (mm_status, [POINTER(mm_value_head), POINTER(mm_view), POINTER(mm_view)]),
    "mm_value_head_grads": (mm_status, [POINTER(mm_value_head), POINTER(mm_view), POINTER(mm_view)]),
    "mm_value_head_save": (mm_status, [POINTER(mm_value_head), c_char_p]),
    "mm_value_head_load": (mm_status, [POINTER(mm_value_head), c_char_p]),
    "mm_comm_init": (None, [POINTER(mm_comm), c_size_t]),
    "mm_comm_options_init": (None, [POINTER(mm_comm_options), c_size_t]),
    "mm_comm_local_create": (mm_status, [
        c_char_p,
        c_int32,
        c_int32,
        POINTER(mm_comm_options),
        POINTER(POINTER(mm_comm)),
    ]),
    "mm_comm_tcp_create": (mm_status, [
        c_char_p,
        c_int32,
        c_int32,
        POINTER(mm_comm_options),
        POINTER(POINTER(mm_comm)),
    ]),
    "mm_comm_free": (None, [POINTER(mm_comm)]),
    "mm_report_options_init": (None, [POINTER(mm_report_options), c_size_t]),
    "mm_report_create": (mm_status, [c_char_p, POINTER(mm_report_options), POINTER(POINTER(mm_report))]),
    "mm_report_free": (None, [POINTER(mm_report)]),
    "mm_report_scalar": (mm_status, [POINTER(mm_report), c_int64, c_char_p, c_double]),
    "mm_report_scalars": (mm_status, [POINTER(mm_report), c_int64, POINTER(c_char_p), POINTER(c_double), c_int32]),
    "mm_report_vector": (mm_status, [POINTER(mm_report), c_int64, c_char_p, POINTER(c_double), c_int32]),
    "mm_report_text": (mm_status, [POINTER(mm_report), c_int64, c_char_p, c_char_p, c_size_t]),
    "mm_report_fact": (mm_status, [POINTER(mm_report), c_char_p, c_char_p]),
    "mm_report_flush": (mm_status, [POINTER(mm_report)]),
    "mm_evaluation_init": (None, [POINTER(mm_evaluation), c_size_t]),
    "mm_evaluate_loss": (mm_status, [POINTER(mm_context), POINTER(mm_loader), c_int64, POINTER(mm_evaluation)]),
    "mm_evaluate_text_options_init": (None, [POINTER(mm_evaluate_text_options), c_size_t]),
    "mm_evaluate_text": (mm_status, [
        POINTER(mm_context),
        POINTER(mm_tokenizer),
        c_char_p,
        c_size_t,
        POINTER(mm_evaluate_text_options),
        POINTER(mm_evaluation),
    ]),
    "mm_choice_init": (None, [POINTER(mm_choice), c_size_t]),
    "mm_choices_options_init": (None, [POINTER(mm_choices_options), c_size_t]),
    "mm_choices_result_init": (None, [POINTER(mm_choices_result), c_size_t]),
    "mm_evaluate_choices": (mm_status, [
        POINTER(mm_context),
        POINTER(mm_tokenizer),
        POINTER(mm_dataset),
        POINTER(mm_choices_options),
        POINTER(mm_choices_result),
    ]),
    "mm_prompt_answer_init": (None, [POINTER(mm_prompt_answer), c_size_t]),
    "mm_prompts_options_init": (None, [POINTER(mm_prompts_options), c_size_t]),
    "mm_prompts_result_init": (None, [POINTER(mm_prompts_result), c_size_t]),
    "mm_evaluate_prompts": (mm_status, [
        POINTER(mm_context),
        POINTER(mm_tokenizer),
        POINTER(mm_dataset),
        POINTER(mm_prompts_options),
        POINTER(mm_prompts_result),
    ]),
    "mm_train_progress_init": (None, [POINTER(mm_train_progress), c_size_t]),
    "mm_trainer_options_init": (None, [POINTER(mm_trainer_options), c_size_t]),
    "mm_trainer_create": (mm_status, [
        POINTER(mm_model),
        POINTER(mm_loader),
        POINTER(mm_tokenizer),
        POINTER(mm_trainer_options),
        POINTER(POINTER(mm_trainer)),
    ]),
    "mm_trainer_free": (None, [POINTER(mm_trainer)]),
    "mm_trainer_resume": (mm_status, [POINTER(mm_trainer), c_char_p]),
    "mm_trainer_run": (mm_status, [POINTER(mm_trainer)]),
    "mm_trainer_stop": (None, [POINTER(mm_trainer)]),
    "mm_trainer_progress": (mm_status, [POINTER(mm_trainer), POINTER(mm_train_progress)]),
    "mm_trainer_save": (mm_status, [POINTER(mm_trainer)]),
    "mm_distill_cache_write": (mm_status, [POINTER(mm_model), POINTER(mm_loader), c_int32, c_int32, c_char_p]),
    "mm_report_progress": (mm_status, [POINTER(mm_report), POINTER(mm_train_progress)]),
    "mm_samples_options_init": (None, [POINTER(mm_samples_options), c_size_t]),
    "mm_report_samples": (mm_status, [
        POINTER(mm_report),
        c_int64,
        POINTER(mm_context),
        POINTER(mm_tokenizer),
        POINTER(mm_samples_options),
    ]),
}
