//! A broker whose acknowledgements get lost, or stay without an answer, and that keeps a list of what it was told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::queue::{
    Broker, BrokerDelivery, BrokerError, BrokerLimit, BrokerLimits, BrokerSession, Incoming, OpenTerms,
};

/// What the broker was told about deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Acknowledged,
    GivenBack(Duration),
    SetAside,
}

#[derive(Default)]
pub(crate) struct Wire {
    /// So many acknowledgements get lost from now on.
    pub(crate) loses: AtomicU32,
    /// Whoever has sent one that got lost waits for ever.
    pub(crate) is_silent: bool,
    pub(crate) told: Mutex<Vec<Told>>,
    /// How often a session was opened.
    pub(crate) opened: AtomicU32,
}

/// Another broker, and the wire to it.
pub(crate) struct Lossy<B> {
    pub(crate) broker: B,
    pub(crate) wire: Arc<Wire>,
}

impl<B> Lossy<B> {
    pub(crate) fn losing(broker: B, acknowledgements: u32) -> Self {
        let loses = AtomicU32::new(acknowledgements);
        Self { broker, wire: Arc::new(Wire { loses, ..Wire::default() }) }
    }

    /// The first acknowledgement gets lost, and its sender hears nothing.
    pub(crate) fn silent(broker: B) -> Self {
        Self { broker, wire: Arc::new(Wire { loses: AtomicU32::new(1), is_silent: true, ..Wire::default() }) }
    }
}

pub(crate) struct Session<S>(S, Arc<Wire>);
pub(crate) struct Delivery<D>(D, Arc<Wire>);

impl<B: Broker> Broker for Lossy<B> {
    type Session = Session<B::Session>;
    const KIND: &'static str = B::KIND;

    fn source(&self) -> &str {
        self.broker.source()
    }

    fn setting(&self, limit: BrokerLimit) -> String {
        self.broker.setting(limit)
    }

    async fn open(&self, terms: &OpenTerms) -> Result<Self::Session, BrokerError> {
        self.wire.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Session(self.broker.open(terms).await?, self.wire.clone()))
    }
}

impl<S: BrokerSession> BrokerSession for Session<S> {
    type Delivery = Delivery<S::Delivery>;

    fn limits(&self) -> &BrokerLimits {
        self.0.limits()
    }

    async fn receive(&mut self, room: usize) -> Result<Self::Delivery, BrokerError> {
        Ok(Delivery(self.0.receive(room).await?, self.1.clone()))
    }

    async fn stop(&mut self) {
        self.0.stop().await;
    }

    async fn close(self) {
        self.0.close().await;
    }
}

impl<D: BrokerDelivery> Delivery<D> {
    fn tells(&self, told: Told) {
        self.1.told.lock().unwrap().push(told);
    }
}

impl<D: BrokerDelivery> BrokerDelivery for Delivery<D> {
    fn message(&self) -> &Incoming {
        self.0.message()
    }

    async fn acknowledge(self) -> Result<(), BrokerError> {
        self.tells(Told::Acknowledged);
        let loses = self.1.loses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match loses {
            Ok(_) if self.1.is_silent => std::future::pending().await,
            Ok(_) => Err(BrokerError::new("the acknowledgement got lost")),
            Err(_) => self.0.acknowledge().await,
        }
    }

    async fn give_back(self, after: Duration) -> Result<(), BrokerError> {
        self.tells(Told::GivenBack(after));
        self.0.give_back(after).await
    }

    async fn set_aside(self, why: &str) -> Result<(), BrokerError> {
        self.tells(Told::SetAside);
        self.0.set_aside(why).await
    }

    async fn keep_alive(&self) -> Result<(), BrokerError> {
        self.0.keep_alive().await
    }
}
