//! A scenario carried out: lives are lived and ended, and then the provider is asked what it has counted.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil::Tenant;
use counterfoil::sim::CrashPoint;
use counterfoil::store::QuestionKind;
use counterfoil::{Clock as _, SystemClock};

use super::Failed;
use super::case_notice::classes::{Class, reference};
use super::process::{Death, Program, World};
use super::role::{Ended, Order, Report, Role, TENANT};
use super::scenario::{Dying, Pace, Scenario};

/// Where trials are held.
#[derive(Clone, Debug)]
pub struct Place {
    pub program: Program,
    pub folder: PathBuf,
    pub pace: Pace,
}

/// What came of a run under counterfoil.
#[derive(Clone, Debug)]
pub struct Ours {
    /// Notices sent, as the provider counts them.
    pub effects: u64,
    /// What the last life said.
    pub report: Report,
    /// From the last start until it was known what becomes of the run, if an earlier life was cut short.
    pub resumed: Option<Duration>,
}

/// What came of the naive loop.
#[derive(Clone, Debug)]
pub struct Naive {
    pub effects: u64,
    pub succeeded: bool,
}

impl Place {
    /// An order without a death in it.
    pub fn order(&self, world: &World, class: Class, case: &str) -> Order {
        Order {
            ledger: self.folder.join(format!("{case}.db")),
            provider: world.url.clone(),
            class,
            case: case.to_owned(),
            kill: None,
            settle: self.pace.settle,
            patience: self.pace.patience,
            drain: Duration::from_secs(5),
            resume: false,
        }
    }

    /// Carries a scenario out under counterfoil.
    pub async fn ours(
        &self,
        world: &World,
        class: Class,
        scenario: &Scenario,
        case: &str,
    ) -> Result<Ours, Failed> {
        let order = self.order(world, class, case);
        let deaths = scenario.deaths();
        for dying in &deaths {
            let cut_short = self.cut_short(world, Role::Life, &order, *dying).await?;
            if let Some(death) = cut_short {
                return Err(format!("{case}: {dying:?} was not reached: {death:?}").into());
            }
        }
        let death = self.program.start(&Role::Life(order.clone()))?.death().await?;
        let Some(report) = death.report.filter(|_| death.status.success()) else {
            return Err(format!("{case}: the last life ended with {} and no report", death.status).into());
        };
        SystemClock.sleep(scenario.straggles(self.pace)).await;
        let effects = self.effects(world, &order).await?;
        Ok(Ours { effects, report, resumed: death.known_after.filter(|_| !deaths.is_empty()) })
    }

    /// Carries the same out with the naive loop. It has fewer points, and dies only where it has them.
    pub async fn naive(
        &self,
        world: &World,
        class: Class,
        scenario: &Scenario,
        case: &str,
    ) -> Result<Naive, Failed> {
        let order = self.order(world, class, case);
        let mut last = None;
        for dying in scenario.deaths() {
            last = self.cut_short(world, Role::Naive, &order, dying).await?;
            if last.is_some() {
                break;
            }
        }
        let last = match last {
            Some(death) => death,
            None => self.program.start(&Role::Naive(order.clone()))?.death().await?,
        };
        SystemClock.sleep(scenario.straggles(self.pace)).await;
        let effects = self.effects(world, &order).await?;
        Ok(Naive { effects, succeeded: last.looped.unwrap_or(false) })
    }

    /// A life that is cut short; how it ended instead, if it was not.
    async fn cut_short(
        &self,
        world: &World,
        role: fn(Order) -> Role,
        order: &Order,
        dying: Dying,
    ) -> Result<Option<Death>, Failed> {
        match dying {
            Dying::At(kill) => {
                let kill = Some(format!("{}:{}", kill.point, kill.nth));
                let death = self.program.start(&role(Order { kill, ..order.clone() }))?.death().await?;
                Ok(Some(death).filter(|death| !death.was_killed()))
            }
            Dying::InFlight => {
                let process = self.program.start(&role(order.clone()))?;
                world.received(1).await?;
                process.kill().await?;
                Ok(None)
            }
        }
    }

    async fn effects(&self, world: &World, order: &Order) -> Result<u64, Failed> {
        world.effects(&reference(&Tenant::new(TENANT)?, &order.case())?).await
    }
}

impl Ours {
    /// More than one effect, and nobody was told: neither asked, nor is the record marked as resting on the
    /// provider's declaration alone.
    pub fn is_silent_duplicate(&self) -> bool {
        self.effects > 1 && !self.is_asked() && !self.is_marked()
    }

    /// No effect, and the run says that all is well; or a run that neither ended nor asks anybody.
    pub fn is_silent_loss(&self) -> bool {
        match self.report.ended {
            Ended::Succeeded => self.effects == 0,
            Ended::Failed(_) => false,
            Ended::Asked | Ended::Blocked(_) => self.report.questions.is_empty(),
            Ended::Terminated => true,
        }
    }

    /// A person was asked, or told that the world holds more than one effect.
    pub fn is_asked(&self) -> bool {
        let telling =
            |kind: &QuestionKind| matches!(kind, QuestionKind::Ambiguous | QuestionKind::Duplicated);
        self.report.questions.iter().any(telling)
    }

    /// The record says that it rests on the provider's word.
    pub fn is_marked(&self) -> bool {
        self.report.record.as_ref().is_some_and(super::role::Recorded::is_marked)
    }

    /// How the last life came to its end, in a few words.
    pub fn decision(&self) -> &'static str {
        let crossed = |point| self.report.crossed(point) > 0;
        let looked = crossed(CrashPoint::AfterLookup);
        let sent = crossed(CrashPoint::AfterCall);
        let new = crossed(CrashPoint::AfterStarted);
        let kinds = &self.report.questions;
        if matches!(self.report.ended, Ended::Failed(_)) {
            "failed, and said so"
        } else if kinds.contains(&QuestionKind::Ambiguous) {
            "asked a person"
        } else if kinds.contains(&QuestionKind::Duplicated) {
            "looked up: found twice, told a person"
        } else if looked && self.basis() == "Lookup" {
            "looked up: there"
        } else if looked && !sent {
            "looked up once more: once"
        } else if looked && crossed(CrashPoint::AfterConfirmed) {
            "looked up: not there, sent, confirmed"
        } else if looked {
            "looked up: not there, sent again"
        } else if self.is_marked() && sent {
            "same key sent again, marked"
        } else if sent && new {
            "sent for the first time"
        } else {
            "answered from its record"
        }
    }

    fn basis(&self) -> &str {
        self.report.record.as_ref().map_or("", |record| &record.basis)
    }
}

impl Naive {
    pub fn is_silent_duplicate(&self) -> bool {
        self.effects > 1
    }

    pub fn is_silent_loss(&self) -> bool {
        self.succeeded && self.effects == 0
    }
}
