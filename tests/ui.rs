//! What must not compile, and what the compiler then says in our words (DESIGN 4.4, R-EXE-1).

#![allow(missing_docs)]

// What does compile. Built as a part of this test and not by `trybuild`, which would link all dependencies once
// more for it, and only needs to check them for the others.
#[allow(dead_code)]
#[path = "ui/pass.rs"]
mod pass;

#[test]
fn the_type_rules_refuse_what_is_unsafe() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/payment_blind.rs");
    cases.compile_fail("tests/ui/notification_without_package.rs");
    cases.compile_fail("tests/ui/deletion_without_package.rs");
    cases.compile_fail("tests/ui/notification_without_approval.rs");
    cases.compile_fail("tests/ui/lookup_without_reconcile.rs");
    cases.compile_fail("tests/ui/rejects_key_without_reconcile.rs");
}
