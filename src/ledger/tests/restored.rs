//! Whether a ledger may be older than the world, by what its database says of itself.

use crate::ledger::Origin;

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
