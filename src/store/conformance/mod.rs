//! The public suite for every implementation of [`Store`]: one case for each sentence of its contract.
//!
//! ```ignore
//! counterfoil::conformance!(my_store, my_fresh_store());
//! ```
//!
//! The macro makes a module `my_store` with a `#[tokio::test]` for each case. The expression is evaluated once for
//! each case. It gives a future of a value that dereferences to an empty store; the value may hold what it needs (a
//! temporary folder, for example). Every wrapper of a store passes the suite too.
//!
//! A case is a plain function over `&dyn Store` that panics when the contract is broken.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "these are tests: a case that fails panics"
)]

pub mod batch;
pub mod cancel;
pub mod chain;
pub mod contact;
pub mod document;
pub mod due;
pub mod erase;
pub mod escalation;
pub mod evidence;
pub mod fence;
pub mod figures;
pub mod lane;
pub mod look;
pub mod outbox;
pub mod queue;
pub mod record;
pub mod retention;
pub mod revision;
pub mod run;
pub mod run_retention;
pub mod sample;
pub mod schedule;
pub mod signal;
pub mod state;
pub mod step;
pub mod tenant;
pub mod turn;

use super::{Change, Refusal, Store, Verdict};

/// Makes a module with a test for each case of the suite. See [the module](crate::store::conformance).
#[macro_export]
macro_rules! conformance {
    ($name:ident, $store:expr) => {
        mod $name {
            use super::*;
            $crate::conformance_cases! { $store }
        }
    };
}

/// All cases, listed once: a file per subject, a function per sentence.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($store:expr) => {
        $crate::conformance_tests! { $store;
            batch: nothing_is_a_batch, sizes, verdicts_stand_in_the_order_of_the_changes,
                one_refused_change_leaves_the_others, a_change_is_all_or_nothing,
                the_same_change_again_is_admitted, the_same_batch_again_is_admitted,
                a_part_of_a_change_again_is_refused, changes_of_one_row_build_on_one_another;
            cancel: nothing_is_half_written, the_next_commit_is_whole;
            chain: comes_back_as_it_was_written, is_refused_with_its_change, is_left_by_fenced_workers_too,
                outlives_its_tenant;
            contact: come_back_as_they_were_written, the_first_of_an_id_stands, one_is_dropped_for_another,
                a_fenced_worker_adds_none, belong_to_their_tenant;
            due: waiting_runs_whose_answer_has_come, waiting_runs_whose_time_has_come,
                runs_whose_deadline_has_passed, lists_go_on_behind_a_row,
                next_due_is_the_earliest_of_all;
            document: comes_back_as_it_was_written, several_are_written_together_or_not_at_all,
                several_are_asked_for_at_once, is_listed_from_a_place_on;
            erase: nothing_is_left_of_a_tenant, what_is_under_way_keeps_it, a_fenced_worker_erases_nothing;
            escalation: comes_back_as_it_was_written, open_ones_are_listed_the_oldest_first,
                answered_ones_are_listed_and_counted,
                those_about_a_run_are_listed, open_ones_are_counted_for_all_tenants,
                open_ones_are_listed_for_all_tenants, unknown_workflows_are_listed_for_all_tenants,
                the_first_answer_stands, an_answer_needs_a_question, belongs_to_its_tenant;
            evidence: is_left_by_fenced_workers_too, comes_back_the_earliest_first,
                the_first_of_an_attempt_stands, of_a_second_effect_opens_one_question,
                of_a_call_that_its_run_left_is_asked_about, that_came_before_the_seal_is_compared_by_it,
                is_compared_within_a_batch, of_the_effect_of_its_record_asks_nothing, belongs_to_its_tenant;
            fence: rises_with_each_worker, a_name_is_given_once, a_fenced_worker_changes_nothing,
                an_unknown_worker_changes_nothing, a_change_by_nobody_is_refused, only_the_others_are_fenced, a_client_is_no_worker,
                the_pulse_tells_of_runs_that_may_go_on,
                counts_within_the_batch, a_lease_that_ran_out_ends_its_worker,
                a_lease_that_was_renewed_goes_on, an_ended_worker_is_ended_once,
                is_listed_until_it_is_settled, a_retired_worker_has_ended;
            figures: questions_are_listed_the_last_ones_first, an_effect_that_a_lookup_showed_is_avoided_once,
                late_answers_and_shared_effects_are_avoided, a_limit_is_told;
            lane: a_refused_change_stops_its_lane, other_lanes_go_on, verdicts_keep_their_places,
                a_lost_question_stops_nothing, a_stale_change_stops_its_lane_even_if_it_asks,
                is_kept_in_order;
            look: comes_back_as_it_was_written, the_earliest_are_due_first, one_that_is_not_to_come_goes,
                it_comes_with_its_record, a_fenced_worker_takes_none_off, committed_records_are_listed,
                questions_of_a_record_are_listed;
            outbox: comes_back_as_it_was_written, are_placed_in_their_order, an_id_is_taken_once,
                comes_with_its_checkpoint, marks_follow_one_another, the_longest_due_come_first,
                only_published_ones_are_forgotten, a_fenced_worker_publishes_nothing, one_worker_publishes;
            queue: comes_back_as_it_was_written, limits_hold, a_full_key_is_passed_over, tenants_take_turns,
                a_token_is_due, others_are_left, a_fenced_worker_admits_nothing,
                a_command_comes_before_its_turn;
            record: comes_back_as_it_was_written, hostile_text_is_text, a_key_is_taken_once,
                a_key_belongs_to_its_tenant, an_update_stays_with_its_key, belongs_to_its_tenant,
                orphans_are_started_and_nobodys, orphans_are_left_by_runs_that_ended_unsettled,
                orphans_may_wait_for_their_tool, orphans_are_limited, uses_are_listed_by_run,
                are_listed_by_the_beginning_of_their_keys, are_listed_by_their_labels;
            retention: expired_ones_are_listed, what_is_needed_stays, finished_history_may_go,
                what_a_parent_may_undo_stays, what_earlier_children_did_may_go,
                a_tombstone_keeps_its_key, a_forgotten_key_is_new, may_be_kept_for_longer,
                large_payloads_go_with_the_last_record, what_has_changed_stays;
            run_retention: ended_ones_are_listed, what_is_needed_stays, a_tombstone_keeps_its_start_key,
                a_forgotten_start_key_is_new, a_long_one_goes_in_parts, a_large_payload_stays_for_whoever_copied_it,
                what_has_changed_stays;
            revision: each_follows_the_one_before, of_two_from_one_revision_the_first_wins,
                a_change_needs_its_row, a_change_stays_with_its_tenant, a_fenced_worker_changes_none;
            run: comes_back_as_it_was_written, hostile_text_is_text, a_key_is_taken_once,
                a_key_belongs_to_its_tenant_and_workflow, without_a_key_there_is_no_clash,
                belongs_to_its_tenant, is_listed_from_a_place_on, is_listed_by_every_filter, is_listed_by_its_labels,
                a_rare_one_is_found_among_many_keys, orphans_are_active_and_nobodys;
            schedule: comes_back_as_it_was_written, a_tick_begins_one_run, is_due_at_its_time;
            signal: is_pending_until_it_is_received, hostile_text_is_text, are_listed_in_their_order,
                an_id_is_taken_once, is_received_once, a_fenced_worker_says_nothing,
                runs_that_have_one_are_found, blocked_runs_that_are_to_be_cancelled_are_found,
                children_are_found_by_their_parent,
                received_ones_are_listed_by_their_time, one_that_expires_keeps_its_id, an_expired_one_lets_its_payload_go;
            step: comes_back_with_its_run, hostile_text_is_text, is_written_once,
                is_known_by_kind_name_and_id, belongs_to_its_tenant, calls_come_back_with_their_run,
                uses_come_back_with_their_run;
            tenant: the_first_key_stays, those_with_rows_are_listed, a_payload_is_found_by_its_digest, a_payload_belongs_to_its_tenant;
            turn: a_run_is_in_one, tells_checkpoints_apart, history_is_read_by_turns, a_record_keeps_its_turn,
                checkpoints_go_with_a_change_of_their_run, nothing_goes_with_a_refused_change,
                orphans_are_left_by_finished_turns, history_is_read_page_by_page;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($store:expr; $($subject:ident: $($case:ident),+;)+) => {
        $(mod $subject {
            use super::*;
            $(
                #[tokio::test]
                async fn $case() {
                    let store = $store.await;
                    $crate::store::conformance::$subject::$case(&*store).await;
                }
            )+
        })+
    };
}

/// Commits changes that must all be admitted.
pub(crate) async fn admit(store: &dyn Store, changes: &[Change]) {
    let verdicts = store.commit(changes).await.expect("the store works");
    let refused: Vec<_> = verdicts.iter().enumerate().filter(|(_, verdict)| !verdict.is_admitted()).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    assert_eq!(verdicts.len(), changes.len(), "a verdict per change");
}

/// Commits one change and returns the refusal, if any.
pub(crate) async fn refused(store: &dyn Store, change: Change) -> Option<Refusal> {
    match one(store, change).await {
        Verdict::Admitted => None,
        Verdict::Refused(refusal) => Some(refusal),
    }
}

/// Commits one change.
pub(crate) async fn one(store: &dyn Store, change: Change) -> Verdict {
    let mut verdicts = store.commit(&[change]).await.expect("the store works");
    assert_eq!(verdicts.len(), 1, "a verdict per change");
    verdicts.remove(0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// A case that is not in the list never runs.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("mod.rs");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/conformance");
        let (mut subjects, support) = (0, ["mod", "sample", "state"]);
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let subject = path.file_stem().unwrap().to_str().unwrap();
            if support.contains(&subject) {
                continue;
            }
            subjects += 1;
            let start = list.find(&format!("            {subject}: "));
            let start = start.unwrap_or_else(|| panic!("{subject} is not listed"));
            let listed = &list[start..start + list[start..].find(';').expect("the end of the list")];
            let listed: Vec<_> = listed.split([':', ',']).map(str::trim).collect();
            let text = fs::read_to_string(&path).unwrap();
            for case in text.split("pub async fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
                assert!(listed.contains(&case), "{subject}:{case} is not listed");
            }
        }
        assert!(subjects > 15, "the files have moved");
    }
}
