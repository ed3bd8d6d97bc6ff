//! Each rule has a file that breaks it and a file that does not, and the program tells them apart.

use std::collections::BTreeSet;

use counterfoil::policy::{PolicyRule, Severity};

use super::program::Checked;
use super::{codes, findings};

/// A rule, a file that breaks it and nothing else, and the same file mended.
const RULES: &[(PolicyRule, &str, &str)] = &[
    (
        PolicyRule::WindowBelowHorizon,
        "http: {orders: {tenant: identity, ttl: 29 hours, retry_horizon: 24 hours}}",
        "http: {orders: {tenant: identity, ttl: 30 hours, retry_horizon: 24 hours}}",
    ),
    (
        PolicyRule::WindowBelowHorizon,
        "ttl: {batch: 7 days}\nqueues: {jobs: {tenant: topic}}",
        "ttl: {batch: 8 days}\nqueues: {jobs: {tenant: topic}}",
    ),
    (
        PolicyRule::WindowBelowHorizon,
        "nonces: {message: {tenant: identity, window: 60 s, retry_horizon: 60 s}}",
        "nonces: {message: {tenant: identity, window: 2 min, retry_horizon: 60 s}}",
    ),
    (
        PolicyRule::WindowBelowHorizon,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [body_digest], body_window: 95 hours}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [body_digest], body_window: 96 hours}}",
    ),
    (
        PolicyRule::WebhookWindowBelowSender,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, ttl: 95 hours}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, ttl: 4 days}}",
    ),
    (
        // What the sender does counts, and not what the file hopes for.
        PolicyRule::WebhookWindowBelowSender,
        "webhooks: {cards: {scheme: stripe, secrets: [CARDS], tenant: endpoint, ttl: 3 days, retry_horizon: 1 hour}}",
        "webhooks: {cards: {scheme: stripe, secrets: [CARDS], tenant: endpoint, ttl: 4 days, retry_horizon: 1 hour}}",
    ),
    (
        PolicyRule::PaymentWithoutLookup,
        "http: {pay: {preset: payment, tenant: identity, redact: [/card]}}",
        "http: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup}}",
    ),
    (
        PolicyRule::PaymentWithoutLookup,
        "queues: {pay: {preset: payment, tenant: topic, on_unknown: ask}}",
        "queues: {pay: {preset: payment, tenant: topic, on_unknown: transaction}}",
    ),
    (
        PolicyRule::PaymentWithoutLookup,
        "webhooks: {pay: {preset: payment, secrets: [PAY], tenant: endpoint, on_unknown: ask}}",
        "webhooks: {pay: {preset: payment, secrets: [PAY], tenant: endpoint, on_unknown: lookup}}",
    ),
    (
        PolicyRule::PaymentWithoutKey,
        "http: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup, require_headers: []}}",
        "http: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup, require_headers: [idempotency-key]}}",
    ),
    (
        PolicyRule::PaymentForgotten,
        "http: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup, after_ttl: forget}}",
        "http: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup, after_ttl: keep}}",
    ),
    (
        PolicyRule::PaymentBodyNotCompared,
        "reject_on_body_mismatch: false\nhttp: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup}}",
        "reject_on_body_mismatch: true\nhttp: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup}}",
    ),
    (
        PolicyRule::PaymentBodyNotCompared,
        "http: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup, exclude: [/sent_at, /order/Amount]}}",
        "http: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup, exclude: [/sent_at]}}",
    ),
    (
        PolicyRule::PaymentDiffShown,
        "http: {pay: {preset: payment, tenant: identity, on_unknown: lookup}}",
        "http: {pay: {preset: payment, tenant: identity, on_unknown: lookup, on_conflict: {include_diff: false}}}",
    ),
    (
        PolicyRule::BodyNotCompared,
        "http: {orders: {tenant: identity, reject_on_body_mismatch: false}}",
        "reject_on_body_mismatch: false\nhttp: {orders: {tenant: identity, reject_on_body_mismatch: true}}",
    ),
    (
        PolicyRule::KeyNotRequired,
        "require_headers: []\nhttp: {orders: {tenant: identity}}",
        "require_headers: []\nhttp: {orders: {tenant: identity, require_headers: [Idempotency-Key]}}",
    ),
    (PolicyRule::MissingTenant, "http: {orders: {}}", "http: {orders: {tenant: single}}"),
    (PolicyRule::MissingTenant, "queues: {jobs: {}}", "queues: {jobs: {tenant: header}}"),
    (
        PolicyRule::MissingTenant,
        "webhooks: {bank: {secrets: [BANK]}}",
        "webhooks: {bank: {secrets: [BANK], tenant: single}}",
    ),
    (PolicyRule::MissingTenant, "nonces: {message: {}}", "nonces: {message: {tenant: identity}}"),
    (PolicyRule::TenantFromClient, "http: {orders: {tenant: header}}", "http: {orders: {tenant: identity}}"),
    (
        PolicyRule::TenantFromClient,
        "webhooks: {bank: {secrets: [BANK], tenant: header}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint}}",
    ),
    (
        PolicyRule::KeyOfTimeOrChance,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [provider, event_id, timestamp]}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [provider, event_id]}}",
    ),
    (
        PolicyRule::KeyOfTimeOrChance,
        "queues: {jobs: {tenant: topic, key: [topic, 'header:X-Request-Id']}}",
        "queues: {jobs: {tenant: topic, key: [topic, 'header:X-Order-Id']}}",
    ),
    (
        PolicyRule::KeyOfTimeOrChance,
        "queues: {jobs: {tenant: topic, key: [dedupe_id, random]}}",
        "queues: {jobs: {tenant: topic, key: [dedupe_id]}}",
    ),
    (
        PolicyRule::KeyOfTimeOrChance,
        "queues: {jobs: {tenant: topic, key: [dedupe_id, /meta/sent_at]}}",
        "queues: {jobs: {tenant: topic, key: [dedupe_id, /meta/source]}}",
    ),
    (
        PolicyRule::KeyMayDrift,
        "queues: {readings: {tenant: topic, key: [/device, /measured_at]}}",
        "queues: {readings: {tenant: topic, key: [/device, /number]}}",
    ),
    (
        PolicyRule::KeyMayDrift,
        "queues: {readings: {tenant: topic, key: [/device, /timestamp]}}",
        "queues: {readings: {tenant: topic, key: [/device, /number]}}",
    ),
    (
        PolicyRule::KeyOfTimeOrChance,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: ['header:Webhook-Timestamp', event_id]}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: ['header:Webhook-Id', event_id]}}",
    ),
    (
        PolicyRule::KeyMayDrift,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [provider, body_digest]}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [provider, body_digest], body_window: 4 days}}",
    ),
    (
        PolicyRule::KeyWithoutIdentity,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [provider, action]}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, key: [provider, action, /id]}}",
    ),
    (
        PolicyRule::KeyWithoutIdentity,
        "webhooks: {own: {scheme: hmac, secrets: [OWN], signature_header: X-Signature, tenant: endpoint}}",
        "webhooks: {own: {scheme: hmac, secrets: [OWN], signature_header: X-Signature, tenant: endpoint, body_window: 4 days}}",
    ),
    (
        PolicyRule::KeyWithoutIdentity,
        "webhooks: {own: {scheme: hmac, secrets: [OWN], signature_header: X-Signature, tenant: endpoint, key: [event_id, /id]}}",
        "webhooks: {own: {scheme: hmac, secrets: [OWN], signature_header: X-Signature, tenant: endpoint, key: [/id]}}",
    ),
    (
        PolicyRule::KeyWithoutIdentity,
        "queues: {jobs: {tenant: topic, key: [topic, partition]}}",
        "queues: {jobs: {tenant: topic, key: [topic, partition, message_key]}}",
    ),
    (
        PolicyRule::NoStatusUrl,
        "http: {orders: {tenant: identity, in_flight: accepted}}",
        "http: {orders: {tenant: identity, in_flight: accepted, status_at: /operations}}",
    ),
    (
        PolicyRule::WebhookWithoutSecret,
        "webhooks: {bank: {tenant: endpoint, secrets: []}}",
        "webhooks: {bank: {tenant: endpoint, secrets: [NEW, OLD]}}",
    ),
    (
        PolicyRule::WebhookWithoutHeader,
        "webhooks: {own: {scheme: hmac, secrets: [OWN], tenant: endpoint, key: [/id]}}",
        "webhooks: {own: {scheme: hmac, secrets: [OWN], tenant: endpoint, key: [/id], signature_header: X-Signature}}",
    ),
    (
        PolicyRule::ToleranceBeyondWindow,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, after_ttl: forget, ttl: 4 days, tolerance: 4 days}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, after_ttl: forget, ttl: 4 days, tolerance: 5 min}}",
    ),
    (
        PolicyRule::ToleranceWide,
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, tolerance: 16 min}}",
        "webhooks: {bank: {secrets: [BANK], tenant: endpoint, tolerance: 15 min}}",
    ),
    (
        PolicyRule::BrokerEndsFirst,
        "queues: {jobs: {tenant: topic, tries: 10, broker_deliveries: 20}}",
        "queues: {jobs: {tenant: topic, tries: 10}}",
    ),
    (
        // Ten tries of five minutes and nine pauses of thirty seconds.
        PolicyRule::BrokerEndsFirst,
        "queues: {jobs: {tenant: topic, broker_retention: 54 min}}",
        "queues: {jobs: {tenant: topic, broker_retention: 55 min}}",
    ),
    (
        PolicyRule::NonceWindowShort,
        "nonces: {message: {tenant: identity, window: 7 s, retry_horizon: 1 s}}",
        "nonces: {message: {tenant: identity, window: 60 s, retry_horizon: 1 s}}",
    ),
    (
        PolicyRule::NonceWindowLong,
        "nonces: {message: {tenant: identity, window: 25 hours}}",
        "nonces: {message: {tenant: identity, window: 24 hours}}",
    ),
    (
        PolicyRule::FenceAloneWithPayments,
        "stores: {fence: redis}\nfence: {role: alone, sealed: 8 days, pending: 2 hours}\nhttp: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup}}",
        "stores: {fence: redis}\nfence: {sealed: 8 days, pending: 2 hours}\nhttp: {pay: {preset: payment, tenant: identity, redact: [/card], on_unknown: lookup}}",
    ),
    (
        PolicyRule::FenceAlone,
        "stores: {fence: redis}\nfence: {role: alone, sealed: 8 days, pending: 2 hours}\nhttp: {orders: {tenant: identity}}",
        "stores: {fence: redis}\nfence: {role: in_front_of_ledger}\nhttp: {orders: {tenant: identity}}",
    ),
    (
        PolicyRule::FenceSealedBelowPending,
        "stores: {fence: sql}\nfence: {pending: 2 hours, sealed: 1 hour}",
        "stores: {fence: sql}\nfence: {pending: 2 hours, sealed: 2 hours}",
    ),
    (PolicyRule::FenceWithoutStore, "fence: {}", "fence: {}\nstores: {fence: redis}"),
    (
        PolicyRule::LogWithoutEvidence,
        "logging: {include_fields: [tenant, idempotency_key, decision]}\nhttp: {orders: {tenant: identity}}",
        "logging: {include_fields: [idempotency_key, decision, effect_id]}\nhttp: {orders: {tenant: identity}}",
    ),
    (PolicyRule::NoSources, "# nothing yet\n", "http: {orders: {tenant: identity}}"),
];

/// Rules that are told by a fence that stands alone come with a warning about that.
const ALONE: &[(PolicyRule, &str, &str)] = &[
    (
        PolicyRule::FencePendingBelowTimeout,
        "stores: {fence: redis}\nfence: {role: alone, sealed: 2 days, pending: 5 min}\nhttp: {orders: {tenant: identity}}",
        "stores: {fence: redis}\nfence: {role: alone, sealed: 2 days, pending: 6 min}\nhttp: {orders: {tenant: identity}}",
    ),
    (
        PolicyRule::FenceSealedBelowHorizon,
        "stores: {fence: redis}\nfence: {role: alone, sealed: 29 hours, pending: 6 min}\nhttp: {orders: {tenant: identity}}",
        "stores: {fence: redis}\nfence: {role: alone, sealed: 30 hours, pending: 6 min}\nhttp: {orders: {tenant: identity}}",
    ),
];

#[test]
fn each_rule_refuses_one_file_and_lets_its_mended_form_through() {
    for (rule, broken, mended) in RULES {
        assert_eq!(codes(&findings(broken)), [rule.code()], "{broken}");
        assert_eq!(codes(&findings(mended)), Vec::<&str>::new(), "{mended}");
    }
    for (rule, broken, mended) in ALONE {
        let alone = PolicyRule::FenceAlone.code();
        assert_eq!(
            BTreeSet::from_iter(codes(&findings(broken))),
            BTreeSet::from([rule.code(), alone]),
            "{broken}"
        );
        assert_eq!(codes(&findings(mended)), [alone], "{mended}");
    }
}

#[test]
fn the_program_fails_on_each_unsafe_file_and_passes_its_mended_form() {
    for (rule, broken, mended) in RULES.iter().chain(ALONE) {
        let checked = Checked::policy(broken);
        let is_error = rule.severity() == Severity::Error;
        assert_eq!(checked.code, Some(i32::from(is_error)), "{broken}\n{}", checked.out);
        let head = format!("{}[{}]", rule.severity().name(), rule.code());
        assert!(checked.out.contains(&head) && checked.out.contains("  write instead: "), "{}", checked.out);
        assert_eq!(Checked::policy(mended).code, Some(0), "{mended}");
    }
}

/// A finding that names another field than its file has would send people astray.
#[test]
fn a_finding_names_the_line_where_the_field_stands() {
    let text = "\nttl:\n  payment: 24 hours\nhttp:\n  pay:\n    preset: payment\n    redact: [/card]\n    on_unknown: lookup\n";
    let found = findings(text);
    let at: Vec<_> = found
        .iter()
        .map(|found| (found.rule.code(), found.path.as_str(), found.line, found.column))
        .collect();
    assert_eq!(
        at,
        [("window-below-horizon", "ttl.payment", 3, 3), ("missing-tenant", "http.pay.tenant", 5, 3)],
        "the one where the file's ttl stands, the other at its source"
    );
    assert!(found[0].why.starts_with("for http.pay: "), "{}", found[0].why);
}

/// What a finding tells to write is enough.
#[test]
fn the_window_that_a_finding_names_is_let_through() {
    for horizon in
        ["1 s", "59 s", "1 min", "59 min", "1 hour", "23 hours", "24 hours", "25 hours", "3 days", "400 days"]
    {
        let policy = |ttl: &str| {
            format!(
                "http: {{orders: {{tenant: identity, retry_horizon: {horizon}, ttl: {ttl}, after_ttl: forget}}}}"
            )
        };
        let Some(finding) = findings(&policy("1 hour")).into_iter().next() else {
            assert!(["1 s", "59 s", "1 min"].contains(&horizon), "one hour is not enough for {horizon}");
            continue;
        };
        assert!(finding.why.contains("done a second time"), "{}", finding.why);
        let enough = finding.instead.strip_prefix("ttl: ").unwrap().split(',').next().unwrap();
        assert_eq!(codes(&findings(&policy(enough))), Vec::<&str>::new(), "{horizon}: {enough}");
    }
}

#[test]
fn every_rule_is_tested_somewhere() {
    let of_policies = RULES.iter().chain(ALONE).map(|(rule, ..)| rule.code());
    let of_others = super::strict::RULES.iter().chain(super::reports::RULES).map(|rule| rule.code());
    let tested: BTreeSet<_> = of_policies.chain(of_others).collect();
    let all: BTreeSet<_> = PolicyRule::ALL.iter().map(|rule| rule.code()).collect();
    assert_eq!(tested, all);
}
