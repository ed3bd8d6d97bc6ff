//! The tools that an executor knows, checked when they are registered.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::compensate::{Compensator, Undo};
use super::dynamic::About;
use super::effect::{Demands as _, Effect as _};
#[cfg(feature = "agent")]
use super::schema::Schema;
#[cfg(feature = "sim")]
use super::watched::Witness;
use super::watched::{Watched, Watching};
use super::{Prepared, Tool, ToolOffer, Typed};
use crate::crash::Probe;
#[cfg(feature = "sim")]
use crate::crash::Watch;
use crate::id::{IdError, Name};
use crate::ledger::{
    BoundFields, BoundFieldsError, Compensation, Contract, ContractError, Divergence, EffectClass,
    LookupOffer, LookupPolicy, Quota, Retention, RetryPolicy, ReviewPolicy, Throttle, WorstCase,
};
use crate::payload::{Payload, PayloadError};

/// What a tool declares about itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The operation type.
    pub name: Name,
    /// What it does to the world.
    pub effect: EffectClass,
    /// What the provider offers.
    pub contract: Contract,
    /// How often and how soon it is tried.
    pub retry: RetryPolicy,
    /// The number, the pauses and the timeout of its lookups.
    pub lookups: LookupPolicy,
    /// How long its records are kept.
    pub retention: Retention,
    /// What its calls may use up.
    pub quota: Quota,
    /// What becomes of an effect that a resumed run does not ask for.
    pub divergence: Divergence,
    /// The version of its input type.
    pub input_version: u32,
    /// Which fields of its input its key is bound to.
    pub bound: BoundFields,
    /// The people who are asked for the approval that each call needs, if it needs one.
    pub review: Option<ReviewPolicy>,
    /// When its effects are undone, if it can undo them.
    pub compensation: Option<Compensation>,
    /// Any JSON is a result of it: it returns no type that a build could check an answer against.
    pub any_output: bool,
}

impl ToolSpec {
    /// A declaration of no more than this. Its effect class says the rest, nothing is limited, and any JSON is a result.
    pub(crate) fn of(name: Name, effect: EffectClass, contract: Contract, retry: RetryPolicy) -> Self {
        Self {
            name,
            effect,
            contract,
            retry,
            lookups: LookupPolicy::default(),
            retention: effect.retention().at_least(retry.horizon()),
            quota: Quota::default(),
            divergence: effect.divergence(),
            input_version: 1,
            bound: BoundFields::All,
            review: None,
            compensation: None,
            any_output: true,
        }
    }

    /// The worst that can become of a call (FLOW-10).
    pub fn worst_case(&self) -> WorstCase {
        WorstCase::of(self.effect, &self.contract)
    }

    /// Checks the declaration.
    pub(crate) fn check(&self) -> Result<(), RegisterError> {
        let bound = |source| RegisterError::BoundFields { tool: self.name.to_string(), source };
        self.bound.check().map_err(bound)?;
        if self.compensation.as_ref().is_some_and(|policy| !policy.is_decidable()) {
            return Err(RegisterError::TooFewReviewers { tool: self.name.to_string() });
        }
        if self.review.as_ref().is_some_and(|policy| !policy.is_decidable()) {
            return Err(RegisterError::TooFewReviewers { tool: self.name.to_string() });
        }
        self.contract
            .check(self.effect, &self.retry, &self.retention)
            .map_err(|source| RegisterError::Contract { tool: self.name.to_string(), source })
    }
}

/// What a class says is not shorter than the retries that the tool declares.
pub(super) fn kept(effect: EffectClass, declared: Retention, retry: &RetryPolicy) -> Retention {
    if declared == effect.retention() { declared.at_least(retry.horizon()) } else { declared }
}

/// A tool whose input is not known yet.
pub(crate) trait Unprepared: Send + Sync {
    fn spec(&self) -> &Arc<ToolSpec>;
    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError>;
    /// The tool with an input that was stored by a build with this version of it.
    fn prepare_stored(&self, stored: &Payload, _version: u32) -> Result<Arc<dyn Prepared>, PayloadError> {
        self.prepare(stored)
    }
    /// Reads a result as its callers will. Any JSON is one, unless the tool has a type for it.
    fn check_output(&self, _output: &Payload) -> Result<(), PayloadError> {
        Ok(())
    }
    fn typed(&self) -> &dyn Any;
    /// What a model is told about it, if that is known only at run time.
    fn about(&self) -> Option<&About> {
        None
    }
}

/// A registered typed tool.
pub(crate) struct Registered<T> {
    pub(crate) tool: Arc<T>,
    pub(crate) spec: Arc<ToolSpec>,
}

impl<T: Tool> Unprepared for Registered<T> {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        let input = input.decode()?;
        Ok(Arc::new(Typed { tool: self.tool.clone(), spec: self.spec.clone(), input }))
    }

    fn check_output(&self, output: &Payload) -> Result<(), PayloadError> {
        output.decode::<T::Output>().map(drop)
    }

    fn typed(&self) -> &dyn Any {
        self
    }
}

/// The tools of an executor, by name and by type.
#[derive(Default)]
pub struct Registry {
    by_name: HashMap<Name, Arc<dyn Unprepared>>,
    by_type: HashMap<TypeId, Name>,
    /// Tools that were met while the executor runs: routes of an HTTP interface, say.
    met: RwLock<HashMap<Name, Arc<dyn Unprepared>>>,
    /// What models are told of typed tools.
    described: HashMap<Name, About>,
    /// What all tools of a provider declare alike.
    providers: HashMap<String, Throttle>,
    watching: Watching,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Registry {
    /// Registers a typed tool, and beside it what [undoes](super::Compensate) its effects.
    pub fn tool<T: Tool>(&mut self, tool: T) -> Result<(), RegisterError> {
        let tool = Arc::new(tool);
        let compensator = T::Effect::compensator(&tool);
        let name = Name::new(T::NAME)?;
        let declared = tool.contract();
        let promised = <T::Contract as super::contract::Contract>::declaration();
        if (declared.class, declared.lookup != LookupOffer::None)
            != (promised.class, promised.lookup != LookupOffer::None)
        {
            return Err(RegisterError::OtherClass { tool: name.to_string() });
        }
        let retry = tool.retry();
        let spec = ToolSpec {
            name: name.clone(),
            effect: T::Effect::CLASS,
            contract: declared.settled_for(&retry),
            retry,
            lookups: tool.lookups(),
            retention: kept(T::Effect::CLASS, tool.retention(), &retry),
            quota: tool.quota(),
            divergence: tool.divergence(),
            input_version: T::INPUT_VERSION,
            bound: tool.bound(),
            review: T::Effect::review(&tool),
            compensation: compensator.as_ref().map(|compensator| compensator.policy.clone()),
            any_output: false,
        };
        let spec = Arc::new(spec);
        self.add_with(Arc::new(Registered { tool, spec }), compensator)?;
        self.by_type.insert(TypeId::of::<T>(), name);
        Ok(())
    }

    /// Registers a typed tool, and tells models of it by the schema of its input type.
    #[cfg(feature = "agent")]
    pub(crate) fn tool_for_model<T: Tool<Input: schemars::JsonSchema>>(
        &mut self,
        tool: T,
    ) -> Result<(), RegisterError> {
        self.tool(tool)?;
        let (description, schema) = Schema::of::<T::Input>();
        self.described.insert(Name::new(T::NAME)?, About { description, schema });
        Ok(())
    }

    /// Registers a tool, and beside it what undoes its effects.
    pub(super) fn add_with(
        &mut self,
        tool: Arc<dyn Unprepared>,
        compensator: Option<Compensator>,
    ) -> Result<(), RegisterError> {
        let spec = tool.spec().clone();
        self.add(tool)?;
        match compensator {
            Some(compensator) => self.add(Arc::new(Undo::of(&spec, compensator)?)),
            None => Ok(()),
        }
    }

    /// The name of a tool whose declaration is safe, if no registered tool has it.
    fn new_name(&self, spec: &ToolSpec) -> Result<Name, RegisterError> {
        spec.check()?;
        if self.by_name.contains_key(&spec.name) {
            return Err(RegisterError::Twice { tool: spec.name.to_string() });
        }
        Ok(spec.name.clone())
    }

    pub(crate) fn add(&mut self, tool: Arc<dyn Unprepared>) -> Result<(), RegisterError> {
        let name = self.new_name(tool.spec())?;
        if tool.spec().contract.sealed_with_effect {
            let source = ContractError::SealedWithEffect;
            return Err(RegisterError::Contract { tool: name.to_string(), source });
        }
        if let Some((provider, throttle)) = &tool.spec().quota.provider {
            let declared = self.providers.entry(provider.to_string()).or_insert(*throttle);
            if declared != throttle {
                let provider = provider.to_string();
                return Err(RegisterError::OtherThrottle { tool: name.to_string(), provider });
            }
        }
        self.by_name.insert(name, tool);
        Ok(())
    }

    #[cfg(feature = "sim")]
    pub(crate) fn watch(&mut self, watch: Arc<dyn Watch>) {
        self.watching.probe = Probe::of(watch);
    }

    #[cfg(feature = "sim")]
    pub(crate) fn witnessed_by(&mut self, witness: Arc<dyn Witness>) {
        self.watching.witnessed_by(witness);
    }

    /// Where crossings are told that pass neither a tool nor the store.
    pub(crate) const fn probe(&self) -> &Probe {
        &self.watching.probe
    }

    /// The registered tool of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&dyn Unprepared> {
        self.by_name.get(&Name::new(name).ok()?).map(|tool| &**tool)
    }

    /// What models are told of the registered tool of this name, if it says anything.
    pub(crate) fn about(&self, name: &str) -> Option<&About> {
        let name = Name::new(name).ok()?;
        self.described.get(&name).or_else(|| self.by_name.get(&name)?.about())
    }

    /// The tools that models are told of, by name.
    pub(crate) fn offers(&self) -> Vec<ToolOffer> {
        let offer = |spec: &ToolSpec| {
            let About { description, schema } = self.about(spec.name.as_str())?;
            let (description, schema) = (description.clone(), schema.schema.clone());
            Some(ToolOffer { name: spec.name.to_string(), description, schema })
        };
        self.specs().into_iter().filter_map(offer).collect()
    }

    /// The tool whose records have this name: one that was registered, or one that was [met](Self::meet).
    pub(crate) fn known(&self, name: &str) -> Option<Arc<dyn Unprepared>> {
        let name = Name::new(name).ok()?;
        let met = || self.met.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        self.by_name.get(&name).cloned().or_else(met)
    }

    /// Makes a tool known that no builder could name. Its records are looked after as those of a registered one from now on; an
    /// earlier one of its name is replaced. Whether it is the first of its name.
    ///
    /// # Errors
    /// If a tool of its name was registered, or its declaration is unsafe.
    pub(crate) fn meet(&self, tool: Arc<dyn Unprepared>) -> Result<bool, RegisterError> {
        let name = self.new_name(tool.spec())?;
        Ok(self.met.write().unwrap_or_else(PoisonError::into_inner).insert(name, tool).is_none())
    }

    /// The tool that was registered under this type, with its input.
    pub(crate) fn typed<T: Tool>(&self, input: T::Input) -> Option<Arc<dyn Prepared>> {
        let name = self.by_type.get(&TypeId::of::<T>())?;
        let registered: &Registered<T> = self.by_name.get(name)?.typed().downcast_ref()?;
        let Registered { tool, spec } = registered;
        Some(self.hand_out(Arc::new(Typed { tool: tool.clone(), spec: spec.clone(), input })))
    }

    /// The tool with its input as JSON.
    pub(crate) fn untyped(
        &self,
        tool: &dyn Unprepared,
        input: &Payload,
    ) -> Result<Arc<dyn Prepared>, PayloadError> {
        Ok(self.hand_out(tool.prepare(input)?))
    }

    /// The same with an input that was stored by a build with this version of it.
    pub(crate) fn stored(
        &self,
        tool: &dyn Unprepared,
        stored: &Payload,
        version: u32,
    ) -> Result<Arc<dyn Prepared>, PayloadError> {
        Ok(self.hand_out(tool.prepare_stored(stored, version)?))
    }

    /// What undoes the effects of this tool.
    pub(crate) fn undo_of(&self, tool: &str) -> Option<&Undo> {
        self.find(&Undo::name(tool))?.typed().downcast_ref()
    }

    /// When the effects of this tool are undone, if it can undo them.
    pub(crate) fn policy_of(&self, tool: &str) -> Option<&Compensation> {
        self.find(tool)?.spec().compensation.as_ref()
    }

    /// Everything that will touch the world passes here: the seam at which a simulator watches.
    pub(crate) fn hand_out(&self, tool: Arc<dyn Prepared>) -> Arc<dyn Prepared> {
        if self.watching.probe.is_watched() {
            return Arc::new(Watched::new(tool, self.watching.clone()));
        }
        tool
    }

    /// What the tools declare that were met.
    pub(crate) fn met_specs(&self) -> Vec<Arc<ToolSpec>> {
        let met = self.met.read().unwrap_or_else(PoisonError::into_inner);
        met.values().map(|tool| tool.spec().clone()).collect()
    }

    /// What the registered tools declare, by name: the ground of the guarantee report.
    pub fn specs(&self) -> Vec<&ToolSpec> {
        let mut specs: Vec<_> = self.by_name.values().map(|tool| &**tool.spec()).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs
    }
}

/// Why a tool was not registered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Its name cannot be part of a key.
    #[error("a tool cannot be registered: {0}")]
    Name(#[from] IdError),
    /// There is one of that name.
    #[error(
        "a tool named {tool:?} is registered already: one of the two would answer for the other's records; rename it"
    )]
    Twice {
        /// The name.
        tool: String,
    },
    /// The declaration is unsafe.
    #[error("the tool {tool:?} cannot be registered: {source}")]
    Contract {
        /// The tool.
        tool: String,
        /// What is unsafe about it.
        source: ContractError,
    },
    /// Its key is bound to no fields, or to what can be none.
    #[error("the tool {tool:?} cannot be registered: of the fields that its key is bound to, {source}")]
    BoundFields {
        /// The tool.
        tool: String,
        /// What is wrong with them.
        source: BoundFieldsError,
    },
    /// Nobody could ever allow that its effects are undone.
    #[error(
        "the tool {tool:?} cannot be registered: its undoing takes more reviewers than there are, or none; name as many reviewers as \
         have to be in favour, and at least one"
    )]
    TooFewReviewers {
        /// The tool.
        tool: String,
    },
    /// `contract()` says something else than the type.
    #[error(
        "the tool {tool:?} declares another class or lookup in `contract()` than its `Contract` type: start from `contract::…::declaration()`"
    )]
    OtherClass {
        /// The tool.
        tool: String,
    },
    /// Another tool declares the provider in another way.
    #[error(
        "the tool {tool:?} declares another throttle for {provider:?} than a tool before it: a provider has one, declare it once and name it in both"
    )]
    OtherThrottle {
        /// The tool.
        tool: String,
        /// The provider.
        provider: String,
    },
    /// It declares itself as what undoes another tool.
    #[error(
        "the tool {tool:?} cannot be a compensation by itself: say of the tool that it undoes how it is undone"
    )]
    NotATools {
        /// The tool.
        tool: String,
    },
    /// It says how its effects are undone, and leaves none.
    #[error(
        "the tool {tool:?} is a {}, which leaves nothing behind that could be undone: take its `.compensate(…)` away, or \
         declare what it does to the world",
        effect.name()
    )]
    NothingToUndo {
        /// The tool.
        tool: String,
        /// Its effect class.
        effect: EffectClass,
    },
    /// It can be asked whether an effect is undone, and cannot undo it.
    #[error(
        "the tool {tool:?} says how to find a compensation, but not how to compensate: give it a `.compensate(…)`, or take its \
         `.find_compensation(…)` away"
    )]
    NoCompensation {
        /// The tool.
        tool: String,
    },
    /// It says nothing of what it does.
    #[error("the tool {tool:?} has no function that carries it out: give it a `.call(…)`")]
    NoCall {
        /// The tool.
        tool: String,
    },
    /// It needs an approval but names no package.
    #[error("the tool {tool:?} is a {}, which needs an approval: give it a `.package(…)`", effect.name())]
    NoPackage {
        /// The tool.
        tool: String,
        /// Its effect class.
        effect: EffectClass,
    },
}
