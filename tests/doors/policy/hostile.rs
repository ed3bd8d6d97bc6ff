//! Files that are made to hurt whoever reads them: each gets a clear answer, at once.

use counterfoil::policy::{Policy, PolicyRule};

use super::malformed;
use super::program::Checked;

fn is_refused(file: impl AsRef<[u8]>, rule: PolicyRule) {
    let shown: String = String::from_utf8_lossy(file.as_ref()).chars().take(200).collect();
    let found = malformed(&file);
    assert_eq!(found.rule, rule, "{shown}: {found}");
    assert!(found.to_string().len() < 2000 && !found.to_string().contains('\u{1b}'), "{found}");
    let checked = Checked::policy(file);
    assert_eq!(checked.code, Some(1), "{shown}");
    assert!(checked.out.contains(rule.code()) && checked.err.is_empty(), "{shown}: {}", checked.out);
}

#[test]
fn a_billion_laughs_are_not_laughed() {
    let laugh = |n| format!("a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 10].join(", "));
    let laughs: Vec<_> =
        [format!("a0: &a0 [{}]", ["ha"; 10].join(", "))].into_iter().chain((1..30).map(laugh)).collect();
    is_refused(laughs.join("\n"), PolicyRule::Syntax);
    is_refused("http: &all {orders: {}}\nwebhooks: *all\n", PolicyRule::Syntax);
    is_refused("http: &self {orders: *self}\n", PolicyRule::Syntax);
    is_refused("http: {orders: *nowhere}\n", PolicyRule::Syntax);
    is_refused("ttl: {<<: {api: 3 days}, webhook: 7 days}\n", PolicyRule::Syntax);
}

#[test]
fn large_files_are_refused_before_they_are_read() {
    is_refused(vec![b'a'; 10_000_000], PolicyRule::TooLarge);
    let comments = "# a policy\n".repeat(1_000_000);
    is_refused(comments, PolicyRule::TooLarge);
    let largest = format!("{}\nhttp: {{orders: {{tenant: identity}}}}\n", "#".repeat(255 * 1024));
    assert!(Policy::parse(largest).is_ok());
}

#[test]
fn deep_files_are_refused() {
    is_refused("[".repeat(100_000), PolicyRule::Syntax);
    is_refused("{a: ".repeat(50_000), PolicyRule::Syntax);
    is_refused("- ".repeat(100_000), PolicyRule::Syntax);
    let block: Vec<_> = (0..500).map(|n| " ".repeat(n) + "a:").collect();
    is_refused(block.join("\n"), PolicyRule::Syntax);
}

#[test]
fn what_stands_twice_is_refused() {
    is_refused("ttl: {api: 3 days}\nttl: {api: 9 days}\n", PolicyRule::DuplicateField);
    is_refused("ttl: {api: 3 days, \"api\": 9 days}\n", PolicyRule::DuplicateField);
    is_refused(
        "http:\n  orders: {tenant: identity}\n  orders: {tenant: header}\n",
        PolicyRule::DuplicateField,
    );
    let found = malformed("http:\n  orders:\n    tenant: identity\n    ttl: 3 days\n    tenant: header\n");
    assert_eq!((found.line, found.column), (5, 5));
}

#[test]
fn tabs_tags_other_encodings_and_further_documents_are_refused() {
    is_refused("ttl:\n\tapi: 3 days\n", PolicyRule::Syntax);
    is_refused("!policy {http: {}}\n", PolicyRule::Syntax);
    is_refused("http: !!python/object:os.system {orders: {}}\n", PolicyRule::Syntax);
    is_refused("ttl: {!days api: 3 days}\n", PolicyRule::Syntax);
    is_refused("http: {orders: {tenant: identity}}\n---\nhttp: {}\n", PolicyRule::Syntax);
    is_refused("http: {orders: {tenant: identity}}\n...\nmore: [\n", PolicyRule::Syntax);
    is_refused("http: {orders: {tenant: identity\n", PolicyRule::Syntax);
    is_refused("http: {orders: {max_request_bytes: .inf}}\n", PolicyRule::Syntax);
    is_refused(b"http: {orders: {tenant: identity}}\n# caf\xe9\n", PolicyRule::NotUtf8);
    is_refused(b"\xff\xfeh\0t\0t\0p\0:\0", PolicyRule::NotUtf8);
    assert_eq!(malformed(b"http: {}\n# caf\xe9\n").line, 2);
    is_refused("http: {orders: {problem_types: \"a\u{0}b\"}}\n", PolicyRule::Syntax);
    assert!(
        Policy::parse("\u{feff}http: {orders: {tenant: identity}}").is_ok(),
        "a byte order mark is none of it"
    );
    assert!(Policy::parse("http: {orders: {tenant: identity}}\r\n").is_ok());
}

/// Whoever writes a policy writes into terminals and logs.
#[test]
fn names_that_command_terminals_are_shown_without_commands() {
    for text in
        ["\"\\e[31mred\": {}\n", "http: {\"\\e]0;title\\a\": {}}\n", "http: {orders: {tenant: \"\\e[2J\"}}\n"]
    {
        let checked = Checked::policy(text);
        assert_eq!(checked.code, Some(1));
        assert!(!checked.out.contains(['\u{1b}', '\u{7}']), "{:?}", checked.out);
    }
}
