/* make_corpus: write a small corpus for a small model.
 *
 *     make_corpus --bytes 3000000 --seed 1 --out corpus.jsonl
 *
 * Short stories, questions and answers, in English and in Chinese, one {"text": "..."} a line, all put together from
 * the templates below, so that the quickstart needs no download. The same seed gives the same bytes on every machine.
 *
 * In a template {a/b/c} is one of the three, [list] a row of that list, and [x=list] the same, remembered as x: then
 * [x] is its first column and [x.2] its third; [^x] begins with a capital, [x:list] only remembers. Rows end with a
 * semicolon, columns with a bar. A row may hold templates again. */
#define _POSIX_C_SOURCE 200809L /* SIGXFSZ */

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
static const struct {
    const char *name, *rows;
} lists[] = {
    { "document", "[story];[story];[story];[gushi];[gushi];[gushi];[questions];[wenda]" },

    /* a name with its pronouns */
    { "person", "Lily|she|her|her|girl|herself;Mia|she|her|her|girl|herself;Anna|she|her|her|girl|herself;"
                "Rosa|she|her|her|girl|herself;Tom|he|his|him|boy|himself;Ben|he|his|him|boy|himself;"
                "Max|he|his|him|boy|himself;Sam|he|his|him|boy|himself" },
    { "ren", "小明|他;小红|她;小华|他;小丽|她;小刚|他;小美|她;明明|他;丽丽|她" },
    /* an animal with its article, plural, food and home; its Chinese name, food, home and measure word */
    { "animal", "cat|a|cats|fish|in a warm house|猫|鱼|温暖的家里|只;dog|a|dogs|bones|in a small kennel|狗|骨头|小木屋里|只;"
                "rabbit|a|rabbits|carrots|in a hole under the ground|兔子|胡萝卜|地洞里|只;"
                "bear|a|bears|honey|in a dark cave|熊|蜂蜜|山洞里|头;monkey|a|monkeys|bananas|in the tall trees|猴子|香蕉|大树上|只;"
                "panda|a|pandas|bamboo|in the bamboo forest|熊猫|竹子|竹林里|只;mouse|a|mice|cheese|in a hole in the wall|老鼠|奶酪|墙洞里|只;"
                "horse|a|horses|hay|in a big stable|马|干草|马房里|匹;sheep|a|sheep|grass|on a green hill|羊|青草|山坡上|只;"
                "duck|a|ducks|corn|on a quiet pond|鸭子|玉米|池塘里|只;squirrel|a|squirrels|nuts|in a hollow tree|松鼠|坚果|树洞里|只;"
                "elephant|an|elephants|leaves|on the wide plain|大象|树叶|草原上|头;frog|a|frogs|worms|in a little pond|青蛙|虫子|荷叶上|只;"
                "owl|an|owls|berries|in an old tree|猫头鹰|浆果|老树上|只" },
    { "voice", "cat|meow|小猫|喵喵;dog|woof|小狗|汪汪;cow|moo|牛|哞哞;duck|quack|鸭子|嘎嘎;sheep|baa|小羊|咩咩;"
               "frog|ribbit|青蛙|呱呱;bee|buzz|蜜蜂|嗡嗡;mouse|squeak|老鼠|吱吱;hen|cluck|母鸡|咯咯" },
    { "thing", "a banana|yellow|香蕉|黄色;an apple|red|苹果|红色;the grass|green|小草|绿色;the sky|blue|天空|蓝色;"
               "the snow|white|雪|白色;the sun|golden|太阳|金色;a carrot|orange|胡萝卜|橙色;a crow|black|乌鸦|黑色;"
               "a strawberry|red|草莓|红色;a lemon|yellow|柠檬|黄色;a leaf|green|树叶|绿色;the sea|blue|大海|蓝色" },
    { "opposite", "hot|cold|热|冷;big|small|大|小;tall|short|高|矮;fast|slow|快|慢;day|night|白天|黑夜;happy|sad|高兴|难过;"
                  "new|old|新|旧;open|closed|开|关;up|down|上|下;light|heavy|轻|重;full|empty|满|空;early|late|早|晚" },
    { "day", "Monday|Tuesday|星期一|星期二;Tuesday|Wednesday|星期二|星期三;Wednesday|Thursday|星期三|星期四;"
             "Thursday|Friday|星期四|星期五;Friday|Saturday|星期五|星期六;Saturday|Sunday|星期六|星期日;"
             "Sunday|Monday|星期日|星期一;spring|summer|春天|夏天;summer|autumn|夏天|秋天;autumn|winter|秋天|冬天" },
    { "job", "doctor|helps sick people|医生|给病人看病;teacher|teaches children|老师|教孩子们读书;"
             "farmer|grows our food|农民|种粮食;baker|bakes bread|面包师|烤面包;driver|drives a bus|司机|开车;"
             "painter|paints pictures|画家|画画;cook|makes dinner|厨师|做饭;singer|sings songs|歌手|唱歌" },
    { "advice", "you are tired|go to bed early|累了|早点睡觉;you are thirsty|drink some water|口渴了|喝水;"
                "it rains|take an umbrella|下雨了|带雨伞;you are cold|put on a coat|冷了|穿上外套;"
                "you are lost|ask for help|迷路了|请别人帮忙;your friend is sad|be kind to your friend|朋友难过|安慰他;"
                "your hands are dirty|wash them with soap|手脏了|洗手;you make a mistake|say that you are sorry|做错了事|说对不起" },
    { "toy", "ball|球;kite|风筝;doll|娃娃;drum|小鼓;hat|帽子;book|书;boat|小船;bell|铃铛;key|钥匙;scarf|围巾" },
    { "place", "garden|花园里;forest|森林里;park|公园里;river|小河边;beach|海边;village|村子里;farm|农场里;school|学校里" },
    { "skill", "swim|游泳;ride a bike|骑自行车;play the drum|打鼓;draw a horse|画马;fly a kite|放风筝;sing a song|唱歌;"
               "bake bread|做面包;count to ten|从一数到十" },
    { "food", "cake|蛋糕;pie|馅饼;soup|热汤;bread|面包;cookie|饼干;pancake|煎饼" },
    { "nice", "little;kind;clever;brave;quiet;funny;gentle;happy" },
    { "one day", "One {sunny/rainy/windy/cold/warm/bright} {morning/day/afternoon};One {day/morning/evening};That {day/morning}" },

    { "story", "[p:person][q:place][begin] {[lost]/[hungry]/[learn]/[share]/[seed]/[storm]}" },
    { "begin", "Once upon a time, there was a [nice] [p.4] named [p]. [^p.1] {loved/liked} to {play/walk/sing} {in/near} the [q].;"
               "[p] was a [nice] [p.4] who lived near the [q].;"
               "There was once a [nice] [p.4] called [p], and [p.1] had a [nice] friend, [b:animal][b.1] [b].;"
               "Long ago, a [nice] [p.4] named [p] lived near the [q] with [p.2] {mother/father/grandmother}." },
    { "lost", "[one day], [p] lost [p.2] {red/blue/green/new/old} [o=toy]. [^p.1] looked {under the bed/behind the door/everywhere}, "
              "but [p.1] could not find it. \"Where is my [o]?\" [p] {cried/asked}. Then a [nice] [a=animal] came and said, \"I saw "
              "your [o] {under a tree/by the river/in the grass}.\" They went there together, and there it was! [p] "
              "{hugged/thanked} the [a] and was very happy. From that day on, they were {good/best} friends." },
    { "hungry", "[one day], [p] met a [nice] [a=animal]. The [a] was {very hungry/sad and hungry}. \"What do you like to eat?\" "
                "asked [p]. \"I like [a.3],\" said the [a]. So [p] {ran home/went to the kitchen} and came back with some [a.3]. "
                "The [a] ate everything and {smiled/danced/jumped for joy}. \"Thank you, [p]! You are so kind.\" [p] felt warm inside." },
    { "learn", "[p] wanted to learn how to [s=skill]. At first it was {too/very} hard, and [p.1] wanted to stop. But [p.2] friend "
               "[f=person] said, \"Do not give up. Try {again/one more time}!\" So [p] tried again every {day/morning}. At last "
               "[p.1] could [s] all by [p.5]. Everyone clapped, and [p] was {proud/very happy}. [p] learned to keep trying." },
    { "share", "[one day], [p]'s {mother/father/grandmother} made a big [c=food]. [p] wanted to eat it all. Then [p.1] saw [f=person], "
               "who had nothing to eat. [p] thought for a while and said, \"Let us share my [c].\" They sat down {under a "
               "tree/in the sun/by the window} and ate it together. It tasted even better. [p] learned that sharing makes us happy." },
    { "seed", "[one day], [p] found a {tiny/small/round} seed and put it in the ground. [^p.1] gave it water every day. For a long "
              "time nothing {happened/grew}, but [p] did not give up. Then, one morning, a {green leaf/little flower} came out! It grew "
              "until it was as tall as [p]. A [nice] [a=animal] came to look and said, \"How beautiful!\" [p] was so proud." },
    { "storm", "[one day], the sky {turned dark/became grey} and it began to {rain/snow}. [p] was far from home and {afraid/cold}. "
               "A [nice] [a=animal] saw [p.3] and said, \"Come with me. I live [a.4].\" There it was {warm/dry and warm}. They "
               "told each other {funny /}stories until the {storm/bad weather} was over. Then [p] {ran/walked} home and told [p.2] mother about the [a]." },
    { "questions", "[question]\n[question];[question]\n[question]\n[question];[question]\n[question]\n[question]\n[question]" },
    { "question", "[a:animal]Question: What do [a.2] eat?\nAnswer: [^a.2] eat [a.3].;"
                  "[a:animal]Question: Where does [a.1] [a] live?\nAnswer: [^a.1] [a] lives [a.4].;"
                  "Question: What does the [v=voice] say?\nAnswer: The [v] says [v.1].;"
                  "Question: What color is [t=thing]?\nAnswer: [^t] is [t.1].;"
                  "Question: What is the opposite of [o=opposite]?\nAnswer: The opposite of [o] is [o.1].;"
                  "Question: What comes after [d=day]?\nAnswer: After [d] comes [d.1].;"
                  "Question: What does a [j=job] do?\nAnswer: A [j] [j.1].;"
                  "Question: What should you do when [w=advice]?\nAnswer: When [w], you should [w.1].;"
                  "Question: How much is [n=sum] plus [n.1]?\nAnswer: [n] plus [n.1] is [n.2].;"
                  "[a:animal]Question: How do you say [a] in Chinese?\nAnswer: In Chinese, [a] is [a.5]." },

    { "gushi", "[p:ren][q:place][kaitou]{[diu]/[chi]/[xue]/[fen]/[zhong]/[yu]}" },
    { "kaitou", "从前，有一个[hao]的孩子叫[p]。[p.1]{很喜欢/常常}在[q.1]{玩/散步/唱歌}。;[p]是一个[hao]的孩子，住在[q.1]。;"
                "很久以前，[hao]的[p]和{妈妈/爸爸/奶奶}住在[q.1]。;有一个孩子叫[p]，[p.1]有一个[hao]的朋友，是一[b:animal][b.8][b.5]。" },
    { "hao", "可爱;善良;聪明;勇敢;安静;快乐" },
    { "yitian", "{有一天/一天早上/一个下雨天/一个晴朗的早晨/一天下午/这一天}" },
    { "diu", "[yitian]，[p]的{红/新/小/旧}[o:toy][o.1]不见了。[p.1]{在床下/在门后/到处}找，可是怎么也找不到。“我的[o.1]在哪里呢？”[p]"
             "{着急/难过}地问。这时，一[a:animal][a.8][hao]的[a.5]走过来说：“我看见你的[o.1]在{大树下/小河边/草地上}。”他们一起去找，果然"
             "找到了！[p]高兴极了，说：“谢谢你！”从此，他们成了{好/最好的}朋友。" },
    { "chi", "[yitian]，[p]遇见了一[a:animal][a.8][hao]的[a.5]。[a.5]肚子很饿。“你喜欢吃什么？”[p]问。“我喜欢吃[a.6]。”[a.5]说。[p]"
           "{跑回家/走进厨房}，拿来了很多[a.6]。[a.5]吃得{很香/很高兴}，说：“谢谢你，[p]，你真好！”[p]心里暖暖的。" },
    { "xue", "[p]想学[s:skill][s.1]。开始的时候很难，[p.1]不想学了。[p.1]的朋友[f=ren]说：“不要放弃，再试{一次/一试}吧！”于是[p]"
             "每天{早上/下午}都练习。最后，[p.1]终于学会了[s.1]。大家都为[p.1]{鼓掌/高兴}。[p]明白了：只要努力，就能成功。" },
    { "fen", "[yitian]，{妈妈/爸爸/奶奶}给[p]做了[c:food][c.1]。[p]想一个人吃完。这时，[p.1]看见[f=ren]没有东西吃。[p]想了想，说：“我们"
             "一起吃[c.1]吧。”他们坐在{大树下/阳光里/窗边}，一起吃[c.1]，味道更好了。[p]明白了：分享让人快乐。" },
    { "zhong", "[yitian]，[p]找到一颗{小小/圆圆}的种子，把它种在地里。[p.1]每天给它浇水。过了很久，什么也没有长出来，可是[p]没有放弃。"
               "一天早上，{一片绿叶/一朵小花}长出来了！它越长越高，和[p]一样高。一[a:animal][a.8][a.5]走过来说：“真漂亮！”[p]高兴极了。" },
    { "yu", "[yitian]，天{黑了/变了}，{下起了大雨/下起了大雪}。[p]离家很远，心里{很害怕/很着急}。一[a:animal][a.8][hao]的[a.5]看见了，说："
            "“跟我来吧，我住在[a.7]。”那里又干又暖。他们一起讲故事，一直到{雨停了/天晴了}。[p]{跑/走}回家，把这件事告诉了妈妈。" },
    { "wenda", "[wen]\n[wen];[wen]\n[wen]\n[wen];[wen]\n[wen]\n[wen]\n[wen]" },
    { "wen", "[a:animal]问：[a.5]吃什么？\n答：[a.5]吃[a.6]。;[a:animal]问：[a.5]住在哪里？\n答：[a.5]住在[a.7]。;"
             "[v:voice]问：[v.2]怎么叫？\n答：[v.2][v.3]叫。;[t:thing]问：[t.2]是什么颜色的？\n答：[t.2]是[t.3]的。;"
             "[o:opposite]问：[o.2]的反义词是什么？\n答：[o.2]的反义词是[o.3]。;[d:day]问：[d.2]之后是什么？\n答：[d.2]之后是[d.3]。;"
             "[j:job]问：[j.2]做什么？\n答：[j.2][j.3]。;[w:advice]问：[w.2]怎么办？\n答：[w.2]就[w.3]。;"
             "问：[n=sum]加[n.1]等于几？\n答：[n]加[n.1]等于[n.2]。;[a:animal]问：[a.5]用英语怎么说？\n答：[a.5]的英语是[a]。" },
};
/* clang-format on */

static const char *program = "make_corpus"; /* what messages begin with */

static void fail(const char *what, const char *culprit)
{
    fprintf(stderr, "%s: %s%s\n", program, what, culprit);
    exit(EXIT_FAILURE);
}

static uint64_t state;

/* A number below n, from a counter stirred by two multiplications. */
static unsigned below(unsigned n)
{
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (unsigned)(((z ^ z >> 31) >> 32) * n >> 32);
}

static char text[8192]; /* the document at hand */
static size_t length;
static const char *remembered[128];

/* A random row of the list that [name, end) names; it goes on to a semicolon or the end of its string. */
static const char *pick(const char *name, const char *end)
{
    static char sum[32];
    size_t size = (size_t)(end - name), i = 0;
    if (size == 3 && memcmp(name, "sum", 3) == 0) {
        unsigned a = below(11), b = below(11);
        snprintf(sum, sizeof sum, "%u|%u|%u", a, b, a + b);
        return sum;
    }
    while (i < sizeof lists / sizeof *lists &&
           (strlen(lists[i].name) != size || memcmp(lists[i].name, name, size) != 0))
        i++;
    if (i == sizeof lists / sizeof *lists)
        fail("a template names no list: ", name);
    unsigned rows = 1;
    for (const char *at = lists[i].rows; (at = strchr(at, ';')); at++)
        rows++;
    const char *row = lists[i].rows;
    for (unsigned skip = below(rows); skip > 0; skip--)
        row = strchr(row, ';') + 1;
    return row;
}

/* The same, but hardly ever a row that is remembered already: friends should have two names. */
static const char *pick_another(const char *name, const char *end)
{
    const char *row = pick(name, end);
    for (size_t i = 0, tries = 0; i < sizeof remembered / sizeof *remembered && tries < 20; i++)
        if (remembered[i] == row) {
            row = pick(name, end);
            i = 0;
            tries++;
        }
    return row;
}

static void expand(const char *at, const char *end);

/* What stands between square brackets. */
static void expand_slot(const char *at, const char *end)
{
    size_t begin = length;
    bool capital = *at == '^', single = end - (at += capital) == 1 || at[1] == '.';
    const char *row;
    if (single)
        row = remembered[*at & 127];
    else if (at[1] == '=' || at[1] == ':')
        row = remembered[*at & 127] = pick_another(at + 2, end);
    else
        row = pick(at, end);
    if (!row)
        fail("a template uses what was not chosen yet: ", at);
    for (int column = single && at[1] == '.' ? at[2] - '0' : 0; column > 0; column--)
        row += strcspn(row, "|") + 1;
    if (single || at[1] != ':')
        expand(row, row + strcspn(row, "|;"));
    if (capital && text[begin] >= 'a' && text[begin] <= 'z')
        text[begin] = (char)(text[begin] - 'a' + 'A');
}

/* One of the choices between braces. */
static void expand_choice(const char *at, const char *end)
{
    unsigned choices = 1;
    for (const char *c = at; c < end; c++)
        choices += *c == '/';
    for (unsigned skip = below(choices); skip > 0; skip--)
        at = strchr(at, '/') + 1;
    expand(at, at + strcspn(at, "/}"));
}

static void expand(const char *at, const char *end)
{
    for (const char *close; at < end; at++) {
        if (*at == '{' || *at == '[') {
            close = strchr(at, *at == '{' ? '}' : ']');
            (*at == '{' ? expand_choice : expand_slot)(at + 1, close);
            at = close;
        } else if (length < sizeof text) {
            text[length++] = *at;
        } else {
            fail("a document grew too long at ", at);
        }
    }
}

/* Expand a list's name in brackets into `text`, ended by a NUL. */
static void make(const char *root)
{
    length = 0;
    memset(remembered, 0, sizeof remembered);
    expand(root, root + strlen(root));
    text[length < sizeof text ? length : sizeof text - 1] = '\0';
}

/* As the inside of a JSON string. */
static long write_escaped(FILE *out, const char *from)
{
    long written = 0;
    for (; *from; from++)
        written += *from == '\n' ? fprintf(out, "\\n") : fprintf(out, *from == '"' ? "\\%c" : "%c", *from);
    return written;
}

static long write_document(FILE *out)
{
    make("[document]");
    long written = fprintf(out, "{\"text\": \"");
    written += write_escaped(out, text);
    return written + fprintf(out, "\"}\n");
}

/* --- Conversations --- */

/* A question and its answer, without the words that introduce them in a document. */
typedef struct exchange {
    char question[512], answer[512], friendly[640]; /* the last is the answer with a kind word before it */
} exchange;

static void make_exchange(exchange *e)
{
    static const struct {
        const char *root, *question, *answer, *kind_words[3];
    } languages[2] = {
        { "[question]", "Question: ", "\nAnswer: ", { "Good question! ", "I am glad you ask! ", "Let me tell you! " } },
        { "[wen]", "问：", "\n答：", { "问得好！", "很高兴你问我！", "我来告诉你！" } },
    };
    unsigned which = below(2);
    make(languages[which].root);
    char *answer = strstr(text, languages[which].answer);
    if (!answer || strncmp(text, languages[which].question, strlen(languages[which].question)) != 0)
        fail("a question has no answer: ", text);
    *answer = '\0';
    answer += strlen(languages[which].answer);
    snprintf(e->question, sizeof e->question, "%s", text + strlen(languages[which].question));
    snprintf(e->answer, sizeof e->answer, "%s", answer);
    snprintf(e->friendly, sizeof e->friendly, "%s%s", languages[which].kind_words[below(3)], answer);
}

static long write_message(FILE *out, const char *role, const char *content)
{
    long written = fprintf(out, "{\"role\": \"%s\", \"content\": \"", role);
    written += write_escaped(out, content);
    return written + fprintf(out, "\"}");
}

static long write_turns(FILE *out, const exchange *e, const char *answer)
{
    long written = write_message(out, "user", e->question);
    written += fprintf(out, ", ");
    return written + write_message(out, "assistant", answer);
}

/* One to three questions. One answer in three is friendly: something for preferences to find and strengthen. */
static long write_conversation(FILE *out)
{
    long written = fprintf(out, "{\"conversations\": [");
    for (unsigned turn = 0, turns = 1 + below(3); turn < turns; turn++) {
        exchange e;
        make_exchange(&e);
        written += turn > 0 ? fprintf(out, ", ") : 0;
        written += write_turns(out, &e, below(3) == 0 ? e.friendly : e.answer);
    }
    return written + fprintf(out, "]}\n");
}

/* Whoever asks likes a friendly answer better. */
static long write_preference(FILE *out)
{
    exchange e;
    make_exchange(&e);
    long written = fprintf(out, "{\"chosen\": [");
    written += write_turns(out, &e, e.friendly);
    written += fprintf(out, "], \"rejected\": [");
    written += write_turns(out, &e, e.answer);
    return written + fprintf(out, "]}\n");
}

/* --- The file --- */

/* What FILE is called until it is whole; "" for what is written to as it is: standard output, a pipe, a device. */
static char temporary[4200];

static FILE *open_out(const char *path)
{
    struct stat there;
    if (!path)
        return stdout;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return fopen(path, "wb");
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    return fopen(temporary, "wb");
}

static bool close_out(FILE *out, const char *path)
{
    bool good = !ferror(out) && fflush(out) == 0;
    if (!temporary[0])
        return good;
    good = fclose(out) == 0 && good && rename(temporary, path) == 0;
    if (!good)
        unlink(temporary);
    return good;
}

/* A number from 0 up that is all of `text`. */
static long long whole(const char *name, const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || value < 0 || value == LLONG_MAX)
        fail("a whole number from 0 up is needed for ", name);
    return value;
}

static int help(void)
{
    printf("usage: %s [--kind text|chat|preference] [--bytes N] [--seed N] [--out FILE]\n\n"
           "Write about N bytes (3000000) of short texts, conversations or pairs of answers as JSON lines, to\n"
           "standard output or FILE.\n",
           program);
    if (fflush(stdout) != 0 || ferror(stdout))
        fail("can't write ", "standard output");
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        long (*write)(FILE *out);
    } kinds[] = { { "text", write_document }, { "chat", write_conversation }, { "preference", write_preference } };
    size_t kind = 0;
    signal(SIGXFSZ, SIG_IGN); /* a file that may grow no longer is told of, as a full disk is */
    long long bytes = 3000000;
    const char *path = NULL;
    state = 1;
    if (argc > 0)
        program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--help") == 0)
            return help();
        const char *name = argv[i], *value = argv[i + 1];
        bool is_bytes = strcmp(name, "--bytes") == 0, is_kind = strcmp(name, "--kind") == 0;
        if (!is_bytes && !is_kind && strcmp(name, "--seed") != 0 && strcmp(name, "--out") != 0)
            fail("no such option, see --help: ", name);
        if (!value)
            fail("no value for ", name);
        if (is_bytes && (bytes = whole(name, value)) == 0)
            fail("a number above 0 is needed for ", name);
        else if (strcmp(name, "--seed") == 0)
            state = (uint64_t)whole(name, value);
        else if (strcmp(name, "--out") == 0)
            path = value;
        else if (is_kind) {
            for (kind = 0; kind < 3 && strcmp(value, kinds[kind].name) != 0; kind++)
                ;
            if (kind == 3)
                fail("text, chat and preference are the kinds, not ", value);
        }
    }
    FILE *out = open_out(path);
    if (!out)
        fail("can't write ", path);
    while (bytes > 0 && !ferror(out))
        bytes -= kinds[kind].write(out);
    if (!close_out(out, path))
        fail("can't write ", path ? path : "standard output");
    return EXIT_SUCCESS;
}
