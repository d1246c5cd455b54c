/* make_corpus: write a small corpus for a small model.
 *
 *     make_corpus --bytes 3000000 --seed 1 --out corpus.jsonl
 *
 * Short stories, questions and answers, in English and in Chinese, one {"text": "..."} a line, all put together from the
 * templates below, so that the quickstart needs no download. The same seed gives the same bytes on every machine.
 *
 * In a template {a/b/c} is one of the three, [list] a row of that list, and [x=list] the same, remembered as x: then [x]
 * is its first column and [x.2] its third; [^x] begins with a capital, [x:list] only remembers. Rows end with a
 * semicolon, columns with a bar. A row may hold templates again. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *rows;
} lists[] = {
    { "document", "[story];[story];[story];[gushi];[gushi];[gushi];[questions];[wenda]" },

    /* English: a name with she, her, her, girl */
    { "person", "Lily|she|her|her|girl;Mia|she|her|her|girl;Anna|she|her|her|girl;Rosa|she|her|her|girl;"
                "Tom|he|his|him|boy;Ben|he|his|him|boy;Max|he|his|him|boy;Sam|he|his|him|boy" },
    /* an animal with its article, plural, food, home; the same in Chinese */
    { "animal", "cat|a|cats|fish|a warm house|猫|鱼|温暖的家里;dog|a|dogs|bones|a small kennel|狗|骨头|小木屋里;"
                "rabbit|a|rabbits|carrots|a hole under the ground|兔子|胡萝卜|地洞里;"
                "bear|a|bears|honey|a dark cave|熊|蜂蜜|山洞里;monkey|a|monkeys|bananas|the tall trees|猴子|香蕉|大树上;"
                "panda|a|pandas|bamboo|the bamboo forest|熊猫|竹子|竹林里;mouse|a|mice|cheese|a hole in the wall|老鼠|奶酪|墙洞里;"
                "horse|a|horses|hay|a big stable|马|干草|马房里;sheep|a|sheep|grass|a green hill|羊|青草|山坡上;"
                "duck|a|ducks|snails|a quiet pond|鸭子|小虾|池塘里;squirrel|a|squirrels|nuts|a hollow tree|松鼠|坚果|树洞里;"
                "elephant|an|elephants|leaves|the wide plain|大象|树叶|草原上;frog|a|frogs|flies|a little pond|青蛙|虫子|荷叶上;"
                "owl|an|owls|mice|an old tree|猫头鹰|田鼠|老树上" },
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
    { "day_en", "One {sunny/rainy/windy/cold/warm/bright} {morning/day/afternoon};One {day/morning/evening};That {day/morning}" },

    { "story", "[begin] [lost];[begin] [hungry];[begin] [learn];[begin] [share];[begin] [seed];[begin] [storm]" },
    { "begin", "Once upon a time, there was a [nice] [p.4] named [p=person]. [^p.1] {loved/liked} to {play/walk/sing} in the [q=place].;"
               "[p=person] was a [nice] [p.4] who lived near the [q=place].;"
               "There was once a [nice] [p.4] called [p=person], and [p.1] had a [nice] friend, [a.1] [a=animal].;"
               "Long ago, a [nice] [p.4] named [p=person] lived {near/next to} a [q=place] with [p.2] {mother/father/grandmother}." },
    { "lost", "[day_en], [p] lost [p.2] [{red/blue/green/new/old}] [o=toy]. [^p.1] looked {under the bed/behind the door/everywhere}, but "
              "[p.1] could not find it. \"Where is my [o]?\" [p] {cried/asked}. Then [a.1] [nice] [a=animal] came and said, "
              "\"I saw your [o] {under a tree/by the river/in the grass}.\" They went there together, and there it was! [p] "
              "{hugged/thanked} the [a] and was very happy. From that day on, they were {good/best} friends." },
    { "hungry", "[day_en], [p] met [a.1] [nice] [a=animal]. The [a] was {very hungry/sad and hungry}. \"What do you like to eat?\" "
                "asked [p]. \"I like [a.3],\" said the [a]. So [p] {ran home/went to the kitchen} and came back with some [a.3]. The [a] "
                "ate it all and {smiled/danced/jumped for joy}. \"Thank you, [p]! You are so kind.\" [p] felt {happy/warm inside}." },
    { "learn", "[p] wanted to learn how to [s=skill]. At first it was {too/very} hard, and [p.1] wanted to stop. But [p.2] friend "
               "[f=person] said, \"Do not give up. Try {again/one more time}!\" So [p] tried again {every day/every morning}. At last "
               "[p.1] could [s] all by [{p}]. Everyone clapped, and [p] was {proud/very happy}. [p] learned that it is good to keep trying." },
    { "share", "[day_en], [p.2] {mother/father/grandmother} made a big [c=food]. [p] wanted to eat it all. Then [p.1] saw [f=person], "
               "who had {nothing/no food} to eat. [p] thought for a while and {said/smiled}, \"Let us share my [c].\" They sat down "
               "{under a tree/in the sun/by the window} and ate the [c] together. It tasted even better. [p] learned that sharing makes us happy." },
    { "seed", "[day_en], [p] found a {tiny/small/round} seed and put it in the ground. [^p.1] gave it water every day. For a long time "
              "nothing {happened/grew}, but [p] did not give up. Then, one morning, a {green leaf/little flower} came out! It grew and grew "
              "until it was as tall as [p]. [^a.1] [a=animal] came to {look/see} and said, \"What a beautiful flower!\" [p] was so proud." },
    { "storm", "[day_en], the sky {turned dark/became grey} and it began to {rain/snow}. [p] was far from home and {afraid/cold}. "
               "[^a.1] [nice] [a=animal] heard [p.3] and said, \"Come with me. I live in [a.4].\" There it was {warm/dry and warm}. They "
               "told each other {stories/funny stories} until the {rain/storm} was over. Then [p] {ran/walked} home and told [p.2] mother about the [nice] [a]." },

    { "questions", "[question]\n[question];[question]\n[question]\n[question];[question]\n[question]\n[question]\n[question]" },
    { "question", "Question: What do [a.2:animal][a.2] eat?\nAnswer: [^a.2] eat [a.3].;Question: Where does [a.1:animal][a.1] [a] live?\nAnswer: [^a.1] [a] lives in [a.4].;"
                  "Question: What does the [v=voice] say?\nAnswer: The [v] says [v.1].;Question: What color is [t=thing]?\nAnswer: [^t] is [t.1].;"
                  "Question: What is the opposite of [o=opposite]?\nAnswer: The opposite of [o] is [o.1].;"
                  "Question: What comes after [d=day]?\nAnswer: After [d] comes [d.1].;Question: What does a [j=job] do?\nAnswer: A [j] [j.1].;"
                  "Question: What should you do when [w=advice]?\nAnswer: When [w], you should [w.1].;"
                  "Question: How much is [n=sum] plus [n.1]?\nAnswer: [n] plus [n.1] is [n.2].;"
                  "Question: How do you say [a=animal] in Chinese?\nAnswer: In Chinese, [a] is [a.5]." },
};
