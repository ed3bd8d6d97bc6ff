//! The signs in a database that its ledger may be older than the world.

use super::started;
use crate::clock::Timestamp;
use crate::id::Fence;
use crate::ledger::{
    Contract, ContractClass, EffectClass, Origin, Record, Restored, first_sent, looks_first,
};

#[test]
fn a_new_timeline_is_no_restore_if_a_standby_had_every_commit() {
    let before = Origin {
        system: "7".to_owned(),
        database: 5,
        table: 16_400,
        timeline: 1,
        synchronous: true,
        recovered_in_part: false,
    };
    let promoted = Origin { timeline: 2, synchronous: false, ..before.clone() };
    assert_eq!(before.doubt(&before), None);
    assert_eq!(promoted.doubt(&before), None);
    let asynchronous = Origin { synchronous: false, ..before.clone() };
    assert!(promoted.doubt(&asynchronous).is_some());
    let unknown = Origin { system: String::new(), ..before.clone() };
    assert_eq!((unknown.doubt(&before), before.doubt(&unknown)), (None, None));
    for elsewhere in [
        Origin { system: String::new(), table: 16_500, ..before.clone() },
        Origin { system: "8".to_owned(), ..before.clone() },
        Origin { database: 6, ..before.clone() },
        Origin { table: 16_500, ..before.clone() },
        Origin { recovered_in_part: true, ..promoted },
    ] {
        assert!(elsewhere.doubt(&before).is_some(), "{elsewhere:?}");
    }
}

#[test]
fn a_server_that_does_not_say_which_it_is_is_the_one_it_was() {
    let origin = |system: &str, database| Origin {
        system: system.to_owned(),
        database,
        table: 1,
        timeline: 1,
        synchronous: false,
        recovered_in_part: false,
    };
    assert_eq!(origin("", 5).or_as_it_was(Some(&origin("7", 6))), origin("7", 5));
    assert_eq!(origin("8", 5).or_as_it_was(Some(&origin("7", 6))), origin("8", 5));
    assert_eq!(origin("", 5).or_as_it_was(None), origin("", 5));
}

const RESTORED: Restored = Restored { since: Timestamp(100), by: Fence(5), as_of: None };

// A row written since by a later worker is this ledger's own knowledge.
#[test]
fn what_came_with_the_backup_may_be_lacking() {
    let lacks = |fence, updated_at| {
        let record = Record { fence: Fence(fence), updated_at: Timestamp(updated_at), ..started() };
        RESTORED.may_lack(Some(&record))
    };
    assert!(RESTORED.may_lack(None));
    assert!(lacks(4, 100), "by a worker from before, whatever its clock said");
    assert!(lacks(5, 99), "from before");
    assert!(!lacks(5, 100));
    assert!(!lacks(6, 101));
}

#[test]
fn what_leaves_a_mark_is_looked_for_where_it_may_be_lacking_or_where_that_is_declared() {
    for effect in EffectClass::ALL {
        for class in ContractClass::ALL {
            for (declared, may_lack) in [(false, false), (false, true), (true, false), (true, true)] {
                let contract = Contract { look_first: declared, ..Contract::new(class) };
                let own_database = class == ContractClass::Transactional;
                let is_told_to = declared && effect != EffectClass::Compensation;
                let is_in_danger = !effect.may_repeat(class) && !own_database;
                let expected = is_in_danger && (may_lack || is_told_to);
                assert_eq!(looks_first(effect, &contract, may_lack), expected, "{effect:?} {contract:?}");
            }
        }
    }
}

#[test]
fn a_key_may_have_been_sent_since_the_instant_that_the_rows_are_of() {
    let record = |created_at, attempts| Record { created_at: Timestamp(created_at), attempts, ..started() };
    let known = Restored { as_of: Some(Timestamp(40)), ..RESTORED };
    for (record, restored, sent) in [
        (record(99, 1), None, Timestamp(99)),
        (record(99, 0), None, Timestamp::MIN),
        (record(99, 1), Some(&RESTORED), Timestamp(99)),
        (record(99, 0), Some(&RESTORED), Timestamp(99)),
        (record(100, 1), Some(&RESTORED), Timestamp::MIN),
        (record(100, 1), Some(&known), Timestamp(40)),
    ] {
        assert_eq!(first_sent(&record, restored), sent, "{record:?} {restored:?}");
    }
}
