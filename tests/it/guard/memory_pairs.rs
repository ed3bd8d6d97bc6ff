//! Which two texts are one memory, which are two, and which are only alike (GUARD-3): a table, judged by remembering
//! both of each pair about a subject of its own.

use counterfoil::Engine;
use counterfoil::guard::memory::Outcome;

use Judgement::{Alike, Apart, Other, Same};

/// What becomes of the second text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    /// It is merged into the first.
    Same,
    /// It is new, and the first is suggested; merged only where somebody has opted in.
    Alike,
    /// It is new, and nothing is suggested.
    Other,
    /// It is new, even for somebody who wants everything merged that is at all similar.
    Apart,
}

#[rustfmt::skip]
const PAIRS: &[(Judgement, &str, &str)] = &[
    // Case, white space, punctuation, Unicode form.
    (Same,  "Likes green tea.", "likes green tea"),
    (Same,  "Likes   green\ttea", " likes green\n tea "),
    (Same,  "LIKES GREEN TEA!", "likes green tea"),
    (Same,  "likes “green tea”", "likes \"green tea\""),
    (Same,  "likes tea, not", "likes tea not"),
    (Same,  "Ann's favourite: tea", "Ann’s favourite tea"),
    (Same,  "a caf\u{e9} in Nantes", "a cafe\u{301} in Nantes"),
    (Same,  "ｌｉｋｅｓ ｔｅａ", "likes tea"),
    (Same,  "the of\u{fb01}ce", "the office"),
    (Same,  "soft\u{ad}ware", "software"),
    (Same,  "likes\u{200b} tea\u{feff}", "likes tea"),
    (Same,  "non\u{2011}smoking room", "non-smoking room"),
    (Same,  "likes tea ❤\u{fe0f}", "likes tea ❤"),
    (Same,  "likes tea…", "likes tea..."),
    (Same,  "«Le thé»", "le thé"),
    (Same,  "tea; coffee", "tea, coffee"),
    // Numbers.
    (Apart, "refund order 17", "refund order 18"),
    (Apart, "refund order 17", "refund order 117"),
    (Apart, "it was -5 degrees", "it was 5 degrees"),
    (Same,  "it was \u{2212}5 degrees", "it was -5 degrees"),
    (Apart, "rated 3.5", "rated 35"),
    (Apart, "rated 3,5", "rated 35"),
    (Apart, "costs $20", "costs €20"),
    (Apart, "a discount of 5%", "a discount of 5"),
    (Same,  "a discount of 5 %", "a discount of 5%"),
    (Apart, "10² tiles", "102 tiles"),
    (Apart, "½ litre", "12 litre"),
    (Apart, "pay 5 to 7", "pay 7 to 5"),
    (Apart, "has two children", "has three children"),
    (Apart, "has 2 children", "has 3 children"),
    (Apart, "more than 5 seats", "less than 5 seats"),
    (Apart, "the balance is (500)", "the balance is 500"),
    (Apart, "a pipe of 5\"", "a pipe of 5"),
    (Same,  "said \"order 17\"", "said order 17"),
    (Apart, "sends 5 mW", "sends 5 MW"),
    (Apart, "a 5Mb line", "a 5MB line"),
    (Same,  "weighs 5 KG", "weighs 5 kg"),
    // Identifiers.
    (Apart, "uses v1.2", "uses v12"),
    (Apart, "uses v1.2", "uses v1.3"),
    (Apart, "knows C++", "knows C"),
    (Apart, "knows C#", "knows C"),
    (Apart, "knows .NET", "knows NET"),
    (Apart, "blood type A-", "blood type A+"),
    (Apart, "ticket ABC-1", "ticket ABC-2"),
    (Same,  "ticket ABC-1", "Ticket abc-1."),
    (Apart, "mail ann@example.org", "mail ann@example.com"),
    (Apart, "see https://example.org/A", "see https://example.org/a"),
    (Apart, "video dQw4w9WgXcQ", "video dqw4w9wgxcq"),
    (Apart, "run it with -v", "run it with -q"),
    (Apart, "call 555-1234", "call 555-1235"),
    (Apart, "user_id is the key", "user id is the key"),
    // Dates.
    (Apart, "born 2001-02-03", "born 2001-03-02"),
    (Apart, "the meeting is on 3 May", "the meeting is on 3 June"),
    (Apart, "call at 10:30", "call at 10:45"),
    (Apart, "closed on Monday", "closed on Tuesday"),
    (Apart, "pay before delivery", "pay after delivery"),
    // Denials, in several languages.
    (Apart, "likes tea", "does not like tea"),
    (Apart, "likes tea", "doesn't like tea"),
    (Apart, "is a smoker", "is never a smoker"),
    (Apart, "the invoice is paid", "the invoice is unpaid"),
    (Apart, "the invoice is valid", "the invoice is invalid"),
    (Apart, "likes tea but does not like coffee", "does not like tea but likes coffee"),
    (Apart, "mag grünen Tee", "mag keinen grünen Tee"),
    (Apart, "isst Fleisch", "isst nicht Fleisch"),
    (Apart, "aime le thé", "n'aime pas le thé"),
    (Apart, "le gusta el té", "no le gusta el té"),
    (Apart, "le piace il tè", "non le piace il tè"),
    (Apart, "любит чай", "не любит чай"),
    (Apart, "他喜欢茶", "他不喜欢茶"),
    (Apart, "お茶が好きです", "お茶が好きではないです"),
    (Apart, "차를 좋아한다", "차를 좋아하지 않는다"),
    (Apart, "يحب الشاي", "لا يحب الشاي"),
    (Apart, "אוהב תה", "לא אוהב תה"),
    (Apart, "चाय पसंद है", "चाय पसंद नहीं है"),
    (Apart, "çayı sever", "çayı sever değil"),
    (Apart, "ชอบชา", "ไม่ชอบชา"),
    // Other scripts, and what is written in several ways.
    (Same,  "Straße 17", "STRASSE 17"),
    (Same,  "ΟΔΟΣ", "οδος"),
    (Same,  "ЛЮБИТ ЧАЙ", "любит чай"),
    (Same,  "İSTANBUL'DA IŞIK", "istanbul'da ışık"),
    (Other, "sıkıldı", "sikildi"),
    (Same,  "طلب ١٧", "طلب 17"),
    (Apart, "طلب ١٧", "طلب ١٨"),
    (Same,  "ऑर्डर १७", "ऑर्डर 17"),
    (Same,  "注文１７番", "注文17番"),
    (Apart, "注文17番", "注文18番"),
    (Same,  "他喜欢茶。", "他 喜欢 茶"),
    (Same,  "他有3只猫", "他有 3 只猫"),
    (Apart, "他有三只猫", "他有四只猫"),
    (Same,  "ｶﾀｶﾅ", "カタカナ"),
    (Same,  "चाय पसंद है।", "चाय पसंद है"),
    (Other, "dessert", "désert"),
    // Signs.
    (Apart, "the new menu 👍", "the new menu 👎"),
    (Apart, "the new menu :)", "the new menu :("),
    (Apart, "likes tea", "likes tea?"),
    (Apart, "a < b", "a > b"),
    // Other words.
    (Other, "likes tea", "owns a dog"),
    (Other, "Ann loves Bob", "Bob loves Ann"),
    // Alike.
    (Alike, "likes green tea", "likes green teas"),
    (Alike, "prefers to be called in the morning at home", "prefers to be called at home in the morning"),
    (Alike, "the customer likes green tea", "customer likes green tea"),
    (Alike, "lives in Berlin with a dog", "lives in Berlin with the dog"),
    (Alike, "order 17 was delivered to the neighbour", "order 17 has been delivered to the neighbour"),
    (Alike, "他很喜欢喝绿茶", "他喜欢喝绿茶"),
];

#[tokio::test]
async fn all_pairs_are_judged_right() {
    let count = |judgement| PAIRS.iter().filter(|(judged, ..)| *judged == judgement).count();
    assert!(PAIRS.len() >= 80 && count(Same) >= 25 && count(Apart) >= 50, "{}", PAIRS.len());
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::sqlite(folder.path().join("test.db")).start().await.unwrap();
    let mut wrong = Vec::new();
    for (number, (judgement, one, other)) in PAIRS.iter().enumerate() {
        for (turn, (first, second)) in [(one, other), (other, one)].into_iter().enumerate() {
            let judged = judged(&engine, &format!("pair {number}.{turn}"), first, second).await;
            if judged != Ok(*judgement) {
                wrong.push(format!("{first:?} and {second:?} should be {judgement:?}, are {judged:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), 2 * PAIRS.len(), wrong.join("\n"));
    engine.shutdown(std::time::Duration::ZERO).await;
}

/// By default, and for somebody who wants whatever is similar merged.
async fn judged(engine: &Engine, subject: &str, first: &str, second: &str) -> Result<Judgement, String> {
    let acme = engine.tenant("acme").unwrap();
    let (strict, lax) = (acme.memory(subject), acme.memory(format!("{subject}, merged")));
    let anything = acme.memory(format!("{subject}, whatever it is"));
    let kept = strict.remember("fact", first).source("one").await.unwrap();
    let second_one = strict.remember("fact", second).source("other").await.unwrap();
    lax.remember("fact", first).source("one").await.unwrap();
    let merged = lax.remember("fact", second).source("other").merge_similar(0.5).await.unwrap();
    anything.remember("fact", first).source("one").await.unwrap();
    let any = anything.remember("fact", second).source("other").merge_similar(0.0).await.unwrap();
    let suggested = second_one.similar.iter().any(|similar| similar.memory == kept.memory);
    match (second_one.outcome, merged.outcome, any.outcome) {
        (SAME, SAME, SAME) => Ok(Same),
        (Outcome::New, Outcome::Merged { .. }, Outcome::Merged { .. }) if suggested => Ok(Alike),
        (Outcome::New, Outcome::New, Outcome::Merged { .. }) if !suggested => Ok(Other),
        (Outcome::New, Outcome::New, Outcome::New) if !suggested => Ok(Apart),
        outcomes => Err(format!("{outcomes:?}, suggested: {suggested}")),
    }
}

const SAME: Outcome = Outcome::Merged { similarity: None };
