//! The identity of a message: a text that all deliveries of one message have in common, and no two messages. Pure.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::incoming::Incoming;

/// The maximum length of an id in the inbox, in bytes.
const LONGEST: usize = 255;

/// The key of a message: its source and partition, with the key from the host, or else the id from its sender, or
/// else the broker's sequence. `None` if it has none of these.
pub(super) fn key(message: &Incoming, made: Option<&str>) -> Option<String> {
    let (kind, id) = match (made, message.message_id(), message.broker_sequence()) {
        (Some(made), _, _) => ("key", made),
        (None, Some(id), _) => ("id", id),
        (None, None, Some(sequence)) => ("seq", sequence),
        (None, None, None) => return None,
    };
    (!id.is_empty()).then(|| within(message, kind, id))
}

/// The key of a question about a message without a key of its own: made of all headers and the payload, so that every
/// delivery of the message leads to the same question.
pub(super) fn of_nameless(message: &Incoming) -> String {
    let mut digest = Sha256::new();
    for (name, value) in message.headers() {
        for part in [name, value] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    digest.update(message.payload());
    within(message, "nameless", &hex(&digest.finalize()))
}

fn within(message: &Incoming, kind: &str, id: &str) -> String {
    let mut key = escaped(message.source());
    if let Some(partition) = message.partition() {
        key.push('/');
        key.push_str(&escaped(partition));
    }
    // `:` ends the source and partition, in which it is escaped.
    key = format!("{key}:{kind}:{id}");
    if key.len() <= LONGEST && !key.chars().any(char::is_control) {
        return key;
    }
    format!("{kind}:sha256:{}", hex(&Sha256::digest(&key)))
}

fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F").replace(':', "%3A")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string never fails
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(source: &str) -> Incoming {
        Incoming::new(source, "")
    }

    #[test]
    fn the_senders_id_comes_before_the_brokers_sequence_and_the_hosts_key_before_both() {
        let message = at("ORDERS").id("evt-17").sequence("1@4");
        assert_eq!(key(&message, Some("order/9")).unwrap(), "ORDERS:key:order/9");
        assert_eq!(key(&message, None).unwrap(), "ORDERS:id:evt-17");
        assert_eq!(key(&at("ORDERS").sequence("1@4"), None).unwrap(), "ORDERS:seq:1@4");
        assert_eq!(key(&at("ORDERS"), None), None);
        assert_eq!(key(&at("ORDERS").id(""), None), None, "an empty id names nothing");
    }

    #[test]
    fn two_places_never_have_a_key_in_common() {
        let partition = key(&at("a").of_partition("b").id("c"), None);
        assert_eq!(partition.as_deref(), Some("a/b:id:c"));
        assert_ne!(partition, key(&at("a/b").id("c"), None));
        assert_ne!(key(&at("a").id("id:b"), None), key(&at("a:id").id("b"), None));
        assert_ne!(key(&at("a").id("4"), None), key(&at("a").sequence("4"), None));
    }

    #[test]
    fn what_the_inbox_does_not_take_is_hashed() {
        let (long, other) = ("x".repeat(300), format!("{}y", "x".repeat(299)));
        let keys =
            [&*long, &*other, "line\nbreak", "line\rbreak"].map(|id| key(&at("a").id(id), None).unwrap());
        for (place, key) in keys.iter().enumerate() {
            assert!(key.len() <= LONGEST && !key.chars().any(char::is_control), "{key}");
            assert!(!keys[..place].contains(key), "{key}");
        }
    }

    #[test]
    fn a_nameless_message_is_told_by_all_that_is_known_of_it() {
        let message =
            |value: &str, body: &str| of_nameless(&Incoming::new("q", body.to_owned()).header("h", value));
        assert_eq!(message("1", "x"), message("1", "x"));
        assert_ne!(message("1", "x"), message("2", "x"));
        assert_ne!(message("1", "x"), message("1", "y"));
        assert_ne!(message("1", "x"), message("", "1x"));
    }
}
