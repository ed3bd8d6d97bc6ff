//! What is not understood is an error with its place: a policy that is half understood is no policy.

use counterfoil::policy::{Policy, PolicyError, PolicyRule};

use super::malformed;
use super::program::Checked;

/// The rules that are tested here and among the hostile files.
pub(super) const RULES: &[PolicyRule] = &[
    PolicyRule::TooLarge,
    PolicyRule::NotUtf8,
    PolicyRule::Syntax,
    PolicyRule::DuplicateField,
    PolicyRule::UnknownField,
    PolicyRule::UnknownValue,
    PolicyRule::WrongValue,
    PolicyRule::SecretInFile,
];

#[test]
fn an_unknown_name_is_told_with_its_place_and_the_nearest_known_one() {
    let nearest = [
        ("require_header: []", (1, 1), "`require_headers`"),
        ("http:\n  orders:\n    tenent: identity", (3, 5), "`tenant`"),
        ("http:\n  orders: {ttl: 3 days, retry_horison: 1 day}", (2, 25), "`retry_horizon`"),
        ("webhooks:\n  bank:\n    secret: [BANK]", (3, 5), "`secrets`"),
        ("queues: {jobs: {retry_dely: 3 s}}", (1, 17), "`retry_delay`"),
        ("fence: {sealled: 1 day}", (1, 9), "`sealed`"),
        ("logging: {include_field: []}", (1, 11), "`include_fields`"),
        ("htttp: {}", (1, 1), "`http`"),
    ];
    for (text, (line, column), instead) in nearest {
        let found = malformed(text);
        assert_eq!(
            (found.rule, found.line, found.column),
            (PolicyRule::UnknownField, line, column),
            "{text}"
        );
        assert_eq!(found.instead, instead, "{text}");
    }
    let far = malformed("fence: {zzz: 1 day}");
    assert_eq!(far.instead, "one of `role`, `url`, `pending`, `sealed`");
    let value = malformed("http:\n  orders:\n    tenant: identty");
    assert_eq!((value.rule, value.line, value.column), (PolicyRule::UnknownValue, 3, 13));
    assert_eq!((value.path.as_str(), value.instead.as_str()), ("http.orders.tenant", "`identity`"));
    assert_eq!(malformed("logging: {include_fields: [body]}").rule, PolicyRule::UnknownValue);
    assert_eq!(malformed("require_headers: [X-Tenant]").rule, PolicyRule::UnknownValue);
}

#[test]
fn a_value_of_a_wrong_form_is_told_with_its_place() {
    let wrong = [
        ("ttl: {api: 30}", 12),
        ("ttl: {api: '30'}", 12),
        ("ttl: {api: 30 weeks}", 12),
        ("ttl: {api: 30 min}", 12),
        ("ttl: {api: 1.5 days}", 12),
        ("ttl: {api: 0 days}", 12),
        ("ttl: {api: -1 days}", 12),
        ("ttl: {api: 9999999999 days}", 12),
        ("ttl: {api: 3  days}", 12),
        ("ttl: {api: days}", 12),
        ("ttl: {api: [3 days]}", 12),
        ("ttl: {api: }", 12),
        ("ttl: {api: ~}", 12),
        ("on_conflict: {status: 500}", 15),
        ("on_conflict: {status: \"409\"}", 15),
        ("on_conflict: {status: 409.0}", 15),
        ("on_conflict: {include_diff: \"true\"}", 15),
        ("on_conflict: {include_diff: yes}", 15),
        ("on_conflict: {include_diff: 1}", 15),
        ("http: {Orders: {}}", 8),
        ("http: {orders: {exclude: [sent_at]}}", 27),
        ("http: {orders: {bind_headers: ['X Y']}}", 32),
        ("http: {orders: {status_at: operations}}", 28),
        ("http: {orders: {timeout: 5}}", 26),
        ("queues: {jobs: {tries: 0}}", 17),
        ("queues: {jobs: {tries: -1}}", 17),
        ("queues: {jobs: {tries: 4294967296}}", 17),
        ("queues: {jobs: {key: [dedupid]}}", 23),
        ("queues: {jobs: {subject: 7}}", 26),
        ("http: [orders]", 7),
        ("http: {orders: }", 16),
        ("just text", 1),
        ("[1, 2]", 1),
    ];
    for (text, column) in wrong {
        let found = malformed(text);
        assert_eq!((found.rule, found.line), (PolicyRule::WrongValue, 1), "{text}: {found}");
        // A value that is read whole is told of where its field or itself begins.
        assert!(found.column.abs_diff(column) <= 15, "{text}: {found}");
        assert!(!found.instead.is_empty() && !found.why.contains(" at line "), "{text}: {found}");
    }
    assert_eq!(malformed("ttl: {api: 30 weeks}").instead, "`30 days`");
    assert_eq!(malformed("ttl: {api: '30'}").path, "ttl.api");
}

#[test]
fn times_are_understood_in_all_their_forms() {
    let days = |text: &str| {
        let policy = Policy::parse(format!("http: {{a: {{ttl: {text}}}}}")).unwrap();
        policy.http("a").unwrap().ttl().as_secs()
    };
    for (text, seconds) in [
        ("1 day", 86_400),
        ("2 days", 172_800),
        ("2d", 172_800),
        ("72h", 259_200),
        ("72 hours", 259_200),
        ("1 hour", 3_600),
    ] {
        assert_eq!(days(text), seconds, "{text}");
    }
}

/// The program prints into logs of builds that many can read.
#[test]
fn a_secret_in_the_file_is_refused_and_never_repeated() {
    for canary in ["whsec_c2VjcmV0Q0FOQVJZ", "sk_live_CANARY", "canary", "CANARY-1", "1CANARY"] {
        let text = format!("webhooks:\n  bank:\n    secrets: [BANK_OLD, '{canary}']\n");
        let found = malformed(&text);
        assert_eq!(
            (found.rule, found.line, found.path.as_str()),
            (PolicyRule::SecretInFile, 3, "webhooks.bank.secrets[1]")
        );
        assert!(!found.to_string().contains(canary), "{found}");
        for format in ["text", "json", "github"] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("policy.yml"), &text).unwrap();
            let checked = Checked::of(folder.path(), &["policy.yml", "--format", format]);
            assert_eq!(checked.code, Some(1));
            assert!(!format!("{}{}", checked.out, checked.err).contains(canary), "{}", checked.out);
        }
    }
}

#[test]
fn an_unsafe_policy_starts_no_service_and_a_warned_one_does() {
    let policy = Policy::parse("http: {orders: {}}").unwrap();
    let Err(PolicyError::Unsafe(findings)) = policy.checked() else { panic!("it is unsafe") };
    assert_eq!(findings[0].rule, PolicyRule::MissingTenant);
    let warned = Policy::parse("http: {orders: {tenant: identity, require_headers: []}}").unwrap();
    assert_eq!(warned.check().len(), 1);
    let warned = warned.checked().unwrap();
    let Err(PolicyError::NoSuchSource { section, known, .. }) = warned.http("order").map(drop) else {
        panic!()
    };
    assert_eq!((section, known.as_str()), ("http", "orders"));
    assert!(
        warned.webhook("bank").is_err() && warned.queue("jobs").is_err() && warned.nonce("message").is_err()
    );
}
