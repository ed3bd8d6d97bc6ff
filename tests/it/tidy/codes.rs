//! Error codes: each public error prints the code that its `code()` gives.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil::ErrorCode;

/// Errors that are a part of another error, which has the code, and one whose code is that of an outcome.
const PARTS: [&str; 4] = ["BoundFieldsError", "BudgetExceeded", "CallError", "Refusal"];

/// The variants that the table of codes gives a code of their own, with its name.
fn table() -> BTreeMap<String, BTreeMap<String, &'static str>> {
    let named = |code: &str| {
        let code = ErrorCode::ALL.iter().find(|known| format!("{known:?}") == code);
        code.unwrap_or_else(|| panic!("{code:?} is a code")).as_str()
    };
    let text = include_str!("../../../src/errors/table.rs").split_once("\ncoded! {\n").unwrap().1;
    let mut errors = BTreeMap::new();
    for block in text.split_once("\n}\n").unwrap().0.split("\n    }") {
        let Some((head, arms)) = block.split_once(" {\n") else { continue };
        let error = head.lines().last().unwrap().trim().trim_end_matches("<E>").to_owned();
        let arms = arms.split("; ").next().unwrap(); // then come those that hold other errors
        let arms: String = arms.lines().filter(|line| !line.trim().starts_with('#')).collect();
        let arms = arms.split(',').filter_map(|arm| arm.split_once(" => "));
        let variants = arms.flat_map(|(variants, code)| {
            variants.split('|').map(move |variant| (variant.trim().to_owned(), named(code)))
        });
        errors.insert(error, variants.collect());
    }
    errors
}

/// The public error enums of a file, each with its variants and their texts. A text has its quotes.
fn enums(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    for block in text.split("\npub enum ").skip(1) {
        let Some((body, _)) = block.split_once("\n}\n") else { continue }; // an enum without variants
        let name = body.split([' ', '<']).next().unwrap();
        let variants = body.split("    #[error(").skip(1).map(|variant| {
            let (attribute, rest) = variant.split_once(")]\n").unwrap();
            let end = attribute.rfind("\",\n").or(attribute.rfind("\", ")).or(attribute.rfind('"'));
            let text = &attribute[..end.map_or(0, |end| end + 1)];
            let rest = rest.lines().find(|line| !line.trim().starts_with('#')).unwrap().trim();
            (rest.split([' ', '(', ',']).next().unwrap().to_owned(), text.to_owned())
        });
        let variants: Vec<_> = variants.collect();
        if !variants.is_empty() {
            found.push((name.to_owned(), variants));
        }
    }
    found
}

#[test]
fn each_public_error_prints_its_code() {
    let table = table();
    let (mut seen, mut pairs) = (BTreeSet::new(), 0);
    for (path, text) in super::sources("src") {
        for (error, variants) in enums(&text) {
            if PARTS.contains(&error.as_str()) {
                continue;
            }
            let codes =
                table.get(&error).unwrap_or_else(|| panic!("{error} of {} has no code()", path.display()));
            for (variant, text) in variants {
                let Some(code) = codes.get(&variant) else { continue };
                assert!(
                    text.ends_with(&format!(" [{code}]\"")),
                    "{error}::{variant} ends with [{code}]: {text}"
                );
                pairs += 1;
            }
            seen.insert(error);
        }
    }
    assert_eq!(seen, table.keys().cloned().collect());
    assert!(pairs > 120, "{pairs}");
}

/// The codes of failures are the same words in the ledger and in the pages.
#[test]
fn a_stored_failure_has_the_name_of_its_code() {
    let unknown = serde_json::from_str::<counterfoil::flow::FailureCode>("\"none\"").unwrap_err().to_string();
    let stored: Vec<_> = unknown.split('`').skip(1).step_by(2).filter(|code| *code != "none").collect();
    assert!(stored.len() > 10, "serde lists the codes: {unknown}");
    for name in stored {
        let code: counterfoil::flow::FailureCode = serde_json::from_value(name.into()).unwrap();
        assert_eq!(code.code().as_str(), name);
    }
}
