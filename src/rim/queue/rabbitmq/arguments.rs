//! The limits in the arguments of a queue. AMQP offers no way to read the arguments: the host declares them, and the
//! broker refuses to open the queue if they differ. Pure.

use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};

use crate::rim::queue::limits::BrokerLimits;

/// The default delivery limit of a quorum queue in RabbitMQ 4.
const QUORUM_DELIVERIES: u64 = 20;

/// The target of rejected messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeadLetters {
    /// The exchange of this name.
    Exchange(String),
    /// The queue of this name, by the default exchange.
    Queue(String),
}

/// The limits in the queue's arguments, with the host's settings about the broker.
pub(super) fn limits(arguments: &FieldTable, acknowledge_within: Duration, unlimited: bool) -> BrokerLimits {
    BrokerLimits {
        deliveries: deliveries(arguments).filter(|_| !unlimited),
        acknowledge_within: Some(acknowledge_within),
        kept_for: number(arguments, "x-message-ttl").map(Duration::from_millis),
        forgets_after: number(arguments, "x-expires").map(Duration::from_millis),
        drops_when_full: drops_when_full(arguments),
        keeps_set_aside: dead_letters(arguments).is_some(),
        keeps_alive: false,
        delays: false,
        in_order: false,
    }
}

/// The target of rejected messages, if the arguments name one.
pub(super) fn dead_letters(arguments: &FieldTable) -> Option<DeadLetters> {
    let exchange = text(arguments, "x-dead-letter-exchange")?;
    if !exchange.is_empty() {
        return Some(DeadLetters::Exchange(exchange));
    }
    text(arguments, "x-dead-letter-routing-key").map(DeadLetters::Queue)
}

fn deliveries(arguments: &FieldTable) -> Option<u64> {
    match arguments.inner().get("x-delivery-limit") {
        Some(limit) => integer(limit).and_then(|limit| u64::try_from(limit).ok()),
        None => (text(arguments, "x-queue-type").as_deref() == Some("quorum")).then_some(QUORUM_DELIVERIES),
    }
}

fn drops_when_full(arguments: &FieldTable) -> Option<String> {
    let overflow = text(arguments, "x-overflow").unwrap_or_else(|| "drop-head".to_owned());
    let limits = ["x-max-length", "x-max-length-bytes"];
    let set = limits.into_iter().filter_map(|name| Some(format!("`{name}` is {}", number(arguments, name)?)));
    let set: Vec<_> = set.collect();
    (!set.is_empty() && overflow == "drop-head")
        .then(|| format!("{}, and the oldest go first", set.join(", ")))
}

fn number(arguments: &FieldTable, name: &str) -> Option<u64> {
    arguments.inner().get(name).and_then(integer).and_then(|number| u64::try_from(number).ok())
}

/// An integer value of any width.
pub(super) fn integer(value: &AMQPValue) -> Option<i64> {
    Some(match value {
        AMQPValue::ShortShortInt(number) => i64::from(*number),
        AMQPValue::ShortShortUInt(number) => i64::from(*number),
        AMQPValue::ShortInt(number) => i64::from(*number),
        AMQPValue::ShortUInt(number) => i64::from(*number),
        AMQPValue::LongInt(number) => i64::from(*number),
        AMQPValue::LongUInt(number) => i64::from(*number),
        AMQPValue::LongLongInt(number) => *number,
        _ => return None,
    })
}

fn text(arguments: &FieldTable, name: &str) -> Option<String> {
    arguments.inner().get(name).and_then(printed)
}

/// A value as text.
pub(super) fn printed(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes()).into_owned()),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        AMQPValue::Boolean(value) => Some(value.to_string()),
        value => integer(value).map(|number| number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[(&str, AMQPValue)]) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        table
    }

    fn long(text: &str) -> AMQPValue {
        AMQPValue::LongString(text.into())
    }

    fn read(arguments: &[(&str, AMQPValue)]) -> BrokerLimits {
        limits(&of(arguments), Duration::from_mins(30), false)
    }

    #[test]
    fn a_quorum_queue_has_a_delivery_limit_unless_it_says_otherwise() {
        let quorum = ("x-queue-type", long("quorum"));
        assert_eq!(read(&[]).deliveries, None);
        assert_eq!(read(std::slice::from_ref(&quorum)).deliveries, Some(20));
        let limit = |limit| [quorum.clone(), ("x-delivery-limit", AMQPValue::LongInt(limit))];
        assert_eq!((read(&limit(5)).deliveries, read(&limit(-1)).deliveries), (Some(5), None));
        assert_eq!(limits(&of(&limit(5)), Duration::ZERO, true).deliveries, None);
    }

    #[test]
    fn times_and_lengths_are_read_in_whatever_width_they_are_written() {
        let read = read(&[
            ("x-message-ttl", AMQPValue::LongLongInt(60_000)),
            ("x-expires", AMQPValue::ShortUInt(1000)),
            ("x-max-length", AMQPValue::LongUInt(10)),
        ]);
        assert_eq!(read.kept_for, Some(Duration::from_mins(1)));
        assert_eq!(read.forgets_after, Some(Duration::from_secs(1)));
        assert!(read.drops_when_full.unwrap().contains("`x-max-length` is 10"));
        let refuses = [("x-max-length", AMQPValue::LongInt(10)), ("x-overflow", long("reject-publish"))];
        assert_eq!(self::read(&refuses).drops_when_full, None);
    }

    #[test]
    fn dead_letters_need_an_exchange_or_a_queue() {
        let exchange = ("x-dead-letter-exchange", long("aside"));
        let default = ("x-dead-letter-exchange", long(""));
        let key = ("x-dead-letter-routing-key", long("orders.aside"));
        assert_eq!(dead_letters(&of(&[])), None);
        assert_eq!(
            dead_letters(&of(std::slice::from_ref(&default))),
            None,
            "it would come back to the queue itself"
        );
        let to = |arguments: &[_]| dead_letters(&of(arguments)).unwrap();
        assert_eq!(to(&[exchange, key.clone()]), DeadLetters::Exchange("aside".to_owned()));
        assert_eq!(to(&[default, key]), DeadLetters::Queue("orders.aside".to_owned()));
    }
}
