//! Properties of the normal form: it is final, removes nothing but appearance, and loses no fact.

use proptest::prelude::*;

use crate::guard::memory::normal_form;

/// Texts with pieces that have broken normal forms before, and with arbitrary characters.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zA-Z]{1,6}",
        3 => "[0-9]{1,3}",
        3 => prop::sample::select(vec![
            " ", "  ", "\t", "-", "--", "—", ".", "..", ",", ";", ":", "!", "?", "'", "\"", "(", ")", "“", "”", "’", "«", "»", "%", "$",
            "/", "\\", "://", "#", "+", "=", "…", "。", "、", "،", "।",
        ]).prop_map(String::from),
        2 => prop::sample::select(vec![
            "ß", "ẞ", "Σ", "ς", "İ", "ı", "I", "é", "e\u{301}", "\u{301}", "ﬁ", "²", "½", "①", "Ⅳ", "１", "Ａ", "ｶﾞ", "茶", "好き", "一",
            "한", "ก", "ا", "١", "१", "👍", "👩‍👧", "❤\u{fe0f}", "\u{200b}", "\u{200d}", "\u{ad}", "µ", "Å", "MB", "Mb", ":)", "ǅ", "ŉ",
        ]).prop_map(String::from),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_normal_form_of_a_normal_form_is_itself(text in text()) {
        let form = normal_form(&text);
        prop_assert_eq!(normal_form(&form), form.clone(), "of {:?}", text);
    }

    #[test]
    fn looks_do_not_matter(words in prop::collection::vec("[b-z]{2,8}", 1..6), end in "[.!]?", gap in "[ \t\n]{1,3}") {
        let plain = words.join(" ");
        let dressed = format!("{gap}“{}”{end}", words.join(&gap).to_uppercase());
        prop_assert_eq!(normal_form(&plain), normal_form(&dressed));
    }

    #[test]
    fn another_number_is_another_text(
        before in "[a-z]{0,5}",
        after in "[a-z]{0,5}",
        one in -10_000_i32..10_000,
        other in -10_000_i32..10_000,
        places in 0_i32..3,
    ) {
        prop_assume!(one != other);
        let scale = 10_f64.powi(places);
        let [one, other] = [one, other].map(|n| format!("{before} {} {after}", f64::from(n) / scale));
        prop_assert_ne!(normal_form(&one), normal_form(&other));
    }

    #[test]
    fn a_point_a_sign_or_a_mark_is_no_look(number in 1_u32..1000, mark in "[+#%$€£/<>=~^*&@_½²👍👎?]") {
        let plain = normal_form(&format!("it is {number}"));
        for other in [format!("it is -{number}"), format!("it is .{number}"), format!("it is {number}{mark}"), format!("it is {mark}{number}")] {
            prop_assert_ne!(&normal_form(&other), &plain, "of {}", other);
        }
    }
}

#[test]
fn what_holds_nothing_but_punctuation_is_itself() {
    assert_eq!(normal_form(" ...  "), "...");
    assert_ne!(normal_form("?!"), normal_form("..."));
    assert_eq!(normal_form(""), "");
}
