/**
 * @file chat.h
 * Conversations: messages to the text and ids that a chat model was trained on, and its replies back to messages.
 *
 *     mm_chat *chat = NULL;
 *     mm_chat_create(&chat);
 *     mm_chat_add(chat, "user", "Hello", 5);
 *     mm_chat_options options = MM_CHAT_OPTIONS_INIT;
 *     options.add_generation_prompt = 1;
 *     mm_chat_encode(chat, tokenizer, &options, ids, capacity, &count);      → mm_generate()
 *
 * A template says how messages become text. Three are known, and rendered exactly as their authors' own code does it:
 *
 *  - "minimind2"  MiniMind2's: a default system text; the assistant's header hangs on the user's turn, so the
 *                 generation prompt, thinking and tools change nothing;
 *  - "minimind3"  MiniMind-3's: tools, tool calls and responses, a <think> block in every assistant turn;
 *  - "minillm"    Mini-LLM's: tools, a default system text, no <think> block of its own.
 *
 * A tokenizer directory brings its template in chat_template.jinja or tokenizer_config.json. It is recognised by its
 * text; one that is not known is refused, never approximated. A tokenizer trained by this library has "minimind2"'s where
 * <|im_start|> and <|im_end|> are among its special tokens, as they are by default, and else none.
 *
 * Threads: a conversation is used by one call at a time.
 */
#ifndef MINIMIND_CHAT_H
#define MINIMIND_CHAT_H

#include <minimind/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A conversation: messages and tools. */
typedef struct mm_chat mm_chat;
/** What a model answered, taken apart. */
typedef struct mm_chat_reply mm_chat_reply;

/** Whether the model is to think before it answers; a template decides what to make of it. */
enum {
    MM_THINK_DEFAULT = 0, /**< as upstream without a flag: minimind3 as OFF, minillm leaves it to the model */
    MM_THINK_ON = 1,      /**< minimind3: the generation prompt ends within an open <think> block */
    MM_THINK_OFF = 2      /**< minimind3, minillm: the generation prompt ends behind an empty <think> block */
};

/** The caller's own strings in place of a template. A turn is prefix, content, suffix; NULL is "". */
typedef struct mm_chat_roles {
    size_t struct_size;            /**< sizeof(mm_chat_roles) */
    const char *begin;             /**< before everything */
    const char *default_system;    /**< content of a system turn put first if there is none; NULL: no such turn */
    const char *system_prefix;     /**< before what the system says */
    const char *system_suffix;     /**< and behind it */
    const char *user_prefix;       /**< before what the user says */
    const char *user_suffix;       /**< and behind it */
    const char *assistant_prefix;  /**< before what the assistant says */
    const char *assistant_suffix;  /**< and behind it */
    const char *tool_prefix;       /**< before a tool's result */
    const char *tool_suffix;       /**< and behind it */
    const char *generation_prompt; /**< NULL: assistant_prefix */
} mm_chat_roles;
#define MM_CHAT_ROLES_INIT { sizeof(mm_chat_roles), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/** Set every field of `roles` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_chat_roles_init(mm_chat_roles *roles, size_t struct_size);

/** How a conversation becomes text. */
typedef struct mm_chat_options {
    size_t struct_size;            /**< sizeof(mm_chat_options) */
    const char *template_name;     /**< "minimind2", "minimind3", "minillm"; NULL: the tokenizer's own */
    const mm_chat_roles *roles;    /**< NULL, or strings in place of a template */
    int32_t add_generation_prompt; /**< 1: end with the opening of an assistant's turn */
    int32_t thinking;              /**< MM_THINK_…; matters with add_generation_prompt alone, and not with roles */
    int32_t content_split;         /**< MM_SPLIT_…: which added tokens mm_chat_encode() recognises in what messages and
                                        tools say. MM_SPLIT_ALL, as upstream: a user who writes <|im_end|> ends the turn.
                                        MM_SPLIT_NO_SPECIAL: for text from outside */
    int32_t reserved;              /**< 0 */
} mm_chat_options;
#define MM_CHAT_OPTIONS_INIT { sizeof(mm_chat_options), NULL, NULL, 0, MM_THINK_DEFAULT, MM_SPLIT_ALL, 0 }

/** Set every field of `options` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_chat_options_init(mm_chat_options *options, size_t struct_size);

/** An empty conversation; yours: pair it with mm_chat_free(). @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY. Since: 0.1 */
MM_API mm_status mm_chat_create(mm_chat **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_chat_free(mm_chat *chat);

/**
 * Add a message.
 *
 * @param role     "system", "user", "assistant" or "tool". Templates print nothing for any other, as upstream; roles
 *                 given as strings refuse it.
 * @param content  `length` bytes of UTF-8; NUL is an ordinary character.
 *
 * @return MM_OK; MM_ERR_ARG, a NULL, an empty role, or not UTF-8 (the message has the byte offset); MM_ERR_MEMORY.
 *         Since: 0.1
 */
MM_API mm_status mm_chat_add(mm_chat *chat, const char *role, const char *content, size_t length);

/**
 * Add a message, or a list of messages, in JSON: {"role": "assistant", "content": "…", "reasoning_content": "…",
 * "tool_calls": [{"name": "…", "arguments": {…}}]}. Only "role" must be there; what else is needed is for the template
 * to say when it is rendered. Keys that no template reads are kept.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_FORMAT, not JSON, or a message that is not an object with a string
 *         "role", or one nested more than 254 levels deep, which could not be read back from what
 *         mm_chat_write_json() gives, or as a data set's row: the conversation is as before. Since: 0.1
 */
MM_API mm_status mm_chat_add_json(mm_chat *chat, const char *json, size_t length);

/**
 * Say which tools the model may call: a JSON list of descriptions, in place of those before.
 *
 * @param json  `[]`, `null`, or NULL with length 0: none.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_MEMORY; MM_ERR_FORMAT, not JSON or not a list: the tools are as before. Since: 0.1
 */
MM_API mm_status mm_chat_set_tools_json(mm_chat *chat, const char *json, size_t length);

/** How many messages there are; 0 for NULL. Since: 0.1 */
MM_API size_t mm_chat_count(const mm_chat *chat);

/** Take out `count` messages from the first-th on. @return MM_OK; MM_ERR_ARG, there are not so many. Since: 0.1 */
MM_API mm_status mm_chat_remove(mm_chat *chat, size_t first, size_t count);

/** Keep the first `count` messages only. @return MM_OK; MM_ERR_ARG, there are fewer. Since: 0.1 */
MM_API mm_status mm_chat_truncate(mm_chat *chat, size_t count);

/**
 * The messages as a JSON list that mm_chat_add_json() takes, without a closing NUL. The tools are not part of it.
 *
 * @param text    Room for `capacity` bytes; NULL with capacity 0 only counts.
 * @param needed  How many bytes it has, also when they did not fit; may be NULL.
 *
 * @return MM_OK; MM_ERR_ARG, also when `capacity` is too small (and not 0): nothing was written; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_chat_write_json(const mm_chat *chat, char *text, size_t capacity, size_t *needed);

/**
 * The name of the template that a tokenizer directory brought. Static.
 *
 * @return MM_OK; MM_ERR_ARG; MM_ERR_STATE, it brought none; MM_ERR_UNSUPPORTED, one that this library does not know.
 *         Threads: any. Since: 0.1
 */
MM_API mm_status mm_chat_template_name(const mm_tokenizer *tokenizer, const char **name);

/**
 * The conversation as text, without a closing NUL.
 *
 * @param tokenizer  Whose template is taken; may be NULL when `options` name one or give role strings.
 * @param options    NULL for the defaults.
 * @param text       Room for `capacity` bytes; NULL with capacity 0 only counts.
 * @param needed     How many bytes the text has, also when they did not fit; may be NULL.
 *
 * @return MM_OK;
 *         MM_ERR_ARG, no messages, no such template, options out of range or contradicting each other, or `capacity`
 *         too small (and not 0): nothing was written;
 *         MM_ERR_FORMAT, a message that the template cannot print, such as a user's without content, or a tool call
 *         without arguments: the message says which;
 *         MM_ERR_STATE, the tokenizer brought no template, and none was named;
 *         MM_ERR_UNSUPPORTED, its template is not known; or tools, with role strings, or with a template by name whose
 *         preface for tools (it is part of a template's text) the tokenizer did not bring;
 *         MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_chat_format(const mm_chat *chat, const mm_tokenizer *tokenizer, const mm_chat_options *options,
                                char *text, size_t capacity, size_t *needed);

/**
 * The conversation as ids: those of mm_chat_format()'s text, which is encoded as a whole.
 *
 * @param tokenizer  Whose ids; not NULL.
 * @param ids        Room for `capacity` ids; NULL with capacity 0 only counts.
 * @param needed     How many ids there are, also when they did not fit; may be NULL.
 *
 * @return as mm_chat_format(). Since: 0.1
 */
MM_API mm_status mm_chat_encode(const mm_chat *chat, const mm_tokenizer *tokenizer, const mm_chat_options *options,
                                int32_t *ids, size_t capacity, size_t *needed);

/** What mm_chat_parse() remarked about a reply; added together. */
enum {
    MM_REPLY_OPEN_REASONING = 1, /**< its <think> block never closed: all that follows is reasoning */
    MM_REPLY_OPEN_CALL = 2,      /**< its last <tool_call> block never closed */
    MM_REPLY_BAD_CALL = 4        /**< there are tool calls that cannot be read */
};

/** A tool call in a reply. Strings are lent by the reply and end in NUL. */
typedef struct mm_tool_call {
    size_t struct_size;      /**< sizeof(mm_tool_call) */
    const char *name;        /**< "" if it cannot be read */
    const char *arguments;   /**< JSON; as the model wrote it if that was a string; "{}" if it gave none */
    const char *raw;         /**< all that stands in its block, as it is */
    const char *problem;     /**< what is wrong with it; "" if nothing is */
    size_t name_length;      /**< bytes without the NUL; a string may hold more of those */
    size_t arguments_length; /**< bytes */
    size_t raw_length;       /**< bytes */
    int64_t status;          /**< MM_OK, or MM_ERR_FORMAT: only raw and problem have something to say */
} mm_tool_call;
#define MM_TOOL_CALL_INIT { sizeof(mm_tool_call), NULL, NULL, NULL, NULL, 0, 0, 0, 0 }

/** Set every field of `call` to its default, of the first `struct_size` bytes. For bindings. Since: 0.1 */
MM_API void mm_tool_call_init(mm_tool_call *call, size_t struct_size);

/**
 * Take a model's reply apart: what it thought, what it says, which tools it calls.
 *
 * Whatever the text, this succeeds: a block that never closed reaches to the end, a call that cannot be read, or whose
 * arguments are nested more than 250 levels deep (with the message round them, mm_chat_add_json() would refuse them),
 * is kept raw. The reply ends at the first <|im_end|> or <|endoftext|>.
 *
 * @param text        `length` bytes of UTF-8.
 * @param in_thought  1 if the prompt ended within an open <think> block (minimind3 with MM_THINK_ON), else 0.
 * @param out         Yours: pair it with mm_chat_reply_free().
 *
 * @return MM_OK; MM_ERR_ARG, a NULL, or not UTF-8; MM_ERR_MEMORY. Since: 0.1
 */
MM_API mm_status mm_chat_parse(const char *text, size_t length, int32_t in_thought, mm_chat_reply **out);

/** NULL is fine. Since: 0.1 */
MM_API void mm_chat_reply_free(mm_chat_reply *reply);

/** What it says, without the blocks; never NULL for a reply, perhaps empty. Lent; ends in NUL. `length` may be NULL.
 *  Since: 0.1 */
MM_API const char *mm_chat_reply_content(const mm_chat_reply *reply, size_t *length);

/** What it thought, without newlines at both ends; NULL if there was no block. Lent; ends in NUL. `length` may be NULL.
 *  Since: 0.1 */
MM_API const char *mm_chat_reply_reasoning(const mm_chat_reply *reply, size_t *length);

/** MM_REPLY_… Since: 0.1 */
MM_API int32_t mm_chat_reply_flags(const mm_chat_reply *reply);

/** How many tools it calls, and the i-th call. @return MM_OK; MM_ERR_ARG, no such call. Since: 0.1 */
MM_API size_t mm_chat_reply_call_count(const mm_chat_reply *reply);
MM_API mm_status mm_chat_reply_call(const mm_chat_reply *reply, size_t index, mm_tool_call *out);

/**
 * The reply as a message for mm_chat_add_json(). With a call that cannot be read, the calls stay in its content as the
 * model wrote them. Lent; ends in NUL. `length` may be NULL. Since: 0.1
 */
MM_API const char *mm_chat_reply_json(const mm_chat_reply *reply, size_t *length);

#ifdef __cplusplus
}
#endif

#endif
