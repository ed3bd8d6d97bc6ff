//! The tools that an executor knows, checked when they are registered.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::approval::Demands as _;
use super::compensate::{Compensator, Undo};
use super::dynamic::About;
use super::effect::{Demands as _, Effect as _};
#[cfg(feature = "agent")]
use super::schema::Schema;
#[cfg(feature = "sim")]
use super::watched::Witness;
use super::watched::{Watched, Watching};
use super::{Prepared, Tool, ToolOffer, Typed, effect};
use crate::crash::Probe;
#[cfg(feature = "sim")]
use crate::crash::Watch;
use crate::id::{IdError, Name};
use crate::ledger::{
    ApprovalRule, BoundFields, BoundFieldsError, Compensation, Contract, ContractError, Divergence,
    EffectClass, LookupOffer, LookupPolicy, Quota, Retention, RetryPolicy, Throttle, WorstCase,
};
use crate::payload::{Payload, PayloadError};

/// The declaration of a tool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The operation type.
    pub name: Name,
    /// The class of the tool's effect on the world.
    pub effect: EffectClass,
    /// The provider's contract.
    pub contract: Contract,
    /// The number and the pauses of attempts, and their timeout.
    pub retry: RetryPolicy,
    /// The number, the pauses and the timeout of its lookups.
    pub lookups: LookupPolicy,
    /// The retention of the tool's records.
    pub retention: Retention,
    /// The limits of the tool's calls.
    pub quota: Quota,
    /// The handling of an effect that a resumed run does not request.
    pub divergence: Divergence,
    /// The version of the tool's input type.
    pub input_version: u32,
    /// The fields of the input that the key is bound to.
    pub bound: BoundFields,
    /// The rule by which the tool's calls are approved.
    pub approval: ApprovalRule,
    /// The policy that says when effects are undone, if the tool can undo them.
    pub compensation: Option<Compensation>,
    /// True if any JSON is a result: the tool has no output type that an answer could be checked against.
    pub any_output: bool,
}

impl ToolSpec {
    /// A declaration of no more than this. The effect class gives the rest, nothing is limited, and any JSON is a
    /// result.
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
            approval: ApprovalRule::None,
            compensation: None,
            any_output: true,
        }
    }

    /// The worst outcome that a call can have.
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
        if matches!(&self.approval, ApprovalRule::Person(policy) if !policy.is_decidable()) {
            return Err(RegisterError::TooFewReviewers { tool: self.name.to_string() });
        }
        self.contract
            .check(self.effect, &self.retry, &self.retention)
            .map_err(|source| RegisterError::Contract { tool: self.name.to_string(), source })
    }
}

/// The retention of a tool's records. If it is the effect class's own, it is not shorter than the declared retries.
pub(super) fn kept(effect: EffectClass, declared: Retention, retry: &RetryPolicy) -> Retention {
    if declared == effect.retention() { declared.at_least(retry.horizon()) } else { declared }
}

/// A tool whose input is not known yet.
pub(crate) trait Unprepared: Send + Sync {
    fn spec(&self) -> &Arc<ToolSpec>;
    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError>;
    /// The tool with an input that was stored with this version.
    fn prepare_stored(&self, stored: &Payload, _version: u32) -> Result<Arc<dyn Prepared>, PayloadError> {
        self.prepare(stored)
    }
    /// Reads a result in the way its callers will. Any JSON is valid, unless the tool has an output type.
    fn check_output(&self, _output: &Payload) -> Result<(), PayloadError> {
        Ok(())
    }
    fn typed(&self) -> &dyn Any;
    /// The description for a model, if it is known only at run time.
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
    /// The tools that were met while the executor runs, such as the routes of an HTTP interface.
    met: RwLock<HashMap<Name, Arc<dyn Unprepared>>>,
    /// The descriptions of typed tools for models.
    described: HashMap<Name, About>,
    /// The limits of each provider, which all its tools declare alike.
    providers: HashMap<String, Throttle>,
    watching: Watching,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Registry {
    /// Registers a typed tool, together with the tool that [undoes](super::Compensate) its effects.
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
            approval: <T::Effect as effect::Demands<T>>::Approval::rule(&tool),
            compensation: compensator.as_ref().map(|compensator| compensator.policy.clone()),
            any_output: false,
        };
        let spec = Arc::new(spec);
        self.add(Arc::new(Registered { tool, spec }), compensator)?;
        self.by_type.insert(TypeId::of::<T>(), name);
        Ok(())
    }

    /// Registers a typed tool, and describes it to models by the schema of its input type.
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

    /// Registers a tool, together with the tool that undoes its effects, if it has one.
    pub(crate) fn add(
        &mut self,
        tool: Arc<dyn Unprepared>,
        compensator: Option<Compensator>,
    ) -> Result<(), RegisterError> {
        let undo = match compensator {
            Some(compensator) => Some(Undo::of(tool.spec(), compensator)?),
            None => None,
        };
        // Both are checked before one is added: a tool whose effects cannot be undone as it declares is not kept.
        self.check(tool.spec())?;
        if let Some(undo) = undo {
            self.check(&undo.spec)?;
            self.insert(Arc::new(undo));
        }
        self.insert(tool);
        Ok(())
    }

    /// The name of a tool whose declaration is safe and whose name is not taken.
    fn new_name(&self, spec: &ToolSpec) -> Result<Name, RegisterError> {
        spec.check()?;
        if self.by_name.contains_key(&spec.name) {
            return Err(RegisterError::Twice { tool: spec.name.to_string() });
        }
        Ok(spec.name.clone())
    }

    /// Checks whether a tool of this declaration can be added.
    fn check(&self, spec: &ToolSpec) -> Result<(), RegisterError> {
        let name = self.new_name(spec)?;
        if spec.contract.sealed_with_effect {
            let source = ContractError::SealedWithEffect;
            return Err(RegisterError::Contract { tool: name.to_string(), source });
        }
        if let Some((provider, throttle)) = &spec.quota.provider
            && self.providers.get(&**provider).is_some_and(|declared| declared != throttle)
        {
            let provider = provider.to_string();
            return Err(RegisterError::OtherThrottle { tool: name.to_string(), provider });
        }
        Ok(())
    }

    /// Adds a tool that was checked.
    fn insert(&mut self, tool: Arc<dyn Unprepared>) {
        let spec = tool.spec();
        if let Some((provider, throttle)) = &spec.quota.provider {
            self.providers.insert(provider.to_string(), *throttle);
        }
        self.by_name.insert(spec.name.clone(), tool);
    }

    #[cfg(feature = "sim")]
    pub(crate) fn watch(&mut self, watch: Arc<dyn Watch>) {
        self.watching.probe = Probe::of(watch);
    }

    #[cfg(feature = "sim")]
    pub(crate) fn witnessed_by(&mut self, witness: Arc<dyn Witness>) {
        self.watching.witnessed_by(witness);
    }

    /// The probe that is told of crash points outside of tools and the store.
    pub(crate) const fn probe(&self) -> &Probe {
        &self.watching.probe
    }

    /// The registered tool of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&dyn Unprepared> {
        self.by_name.get(&Name::new(name).ok()?).map(|tool| &**tool)
    }

    /// The description of the registered tool of this name for models, if it has one.
    pub(crate) fn about(&self, name: &str) -> Option<&About> {
        let name = Name::new(name).ok()?;
        self.described.get(&name).or_else(|| self.by_name.get(&name)?.about())
    }

    /// The tools that are described to models, by name.
    pub(crate) fn offers(&self) -> Vec<ToolOffer> {
        let offer = |spec: &ToolSpec| {
            let About { description, schema } = self.about(spec.name.as_str())?;
            let (description, schema) = (description.clone(), schema.schema.clone());
            Some(ToolOffer { name: spec.name.to_string(), description, schema })
        };
        self.specs().into_iter().filter_map(offer).collect()
    }

    /// The tool that owns the records of this name: one that was registered, or one that was [met](Self::meet).
    pub(crate) fn known(&self, name: &str) -> Option<Arc<dyn Unprepared>> {
        let name = Name::new(name).ok()?;
        let met = || self.met.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        self.by_name.get(&name).cloned().or_else(met)
    }

    /// Makes a tool known that no builder could name. From now on its records are treated as those of a registered
    /// tool; an earlier tool of its name is replaced. True if it is the first of its name.
    ///
    /// # Errors
    /// [`RegisterError`] if a tool of its name was registered, or if its declaration is unsafe.
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

    /// The tool with an input that was stored with this version.
    pub(crate) fn stored(
        &self,
        tool: &dyn Unprepared,
        stored: &Payload,
        version: u32,
    ) -> Result<Arc<dyn Prepared>, PayloadError> {
        Ok(self.hand_out(tool.prepare_stored(stored, version)?))
    }

    /// The tool that undoes the effects of this tool.
    pub(crate) fn undo_of(&self, tool: &str) -> Option<&Undo> {
        self.find(&Undo::name(tool))?.typed().downcast_ref()
    }

    /// True if this tool undoes the effects of another one.
    pub(crate) fn undoes(&self, tool: &str) -> bool {
        self.find(tool).is_some_and(|tool| tool.typed().is::<Undo>())
    }

    /// The policy that says when the effects of this tool are undone, if it can undo them.
    pub(crate) fn policy_of(&self, tool: &str) -> Option<&Compensation> {
        self.find(tool)?.spec().compensation.as_ref()
    }

    /// Hands out a prepared tool. All code that touches the world passes here, so that a simulator can watch it.
    pub(crate) fn hand_out(&self, tool: Arc<dyn Prepared>) -> Arc<dyn Prepared> {
        if self.watching.probe.is_watched() {
            return Arc::new(Watched::new(tool, self.watching.clone()));
        }
        tool
    }

    /// The declarations of the tools that were met.
    pub(crate) fn met_specs(&self) -> Vec<Arc<ToolSpec>> {
        let met = self.met.read().unwrap_or_else(PoisonError::into_inner);
        met.values().map(|tool| tool.spec().clone()).collect()
    }

    /// The declarations of the registered tools, by name: the input of the guarantee report.
    pub fn specs(&self) -> Vec<&ToolSpec> {
        let mut specs: Vec<_> = self.by_name.values().map(|tool| &**tool.spec()).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs
    }
}

/// The reason why a tool was not registered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name cannot be part of a key.
    #[error("a tool cannot be registered: {0}")]
    Name(#[from] IdError),
    /// A tool of that name is registered already.
    #[error(
        "a tool named {tool:?} is registered already: one of the two would answer for the other's records; rename it [declaration]"
    )]
    Twice {
        /// The name of the tool.
        tool: String,
    },
    /// The declaration is unsafe.
    #[error("the tool {tool:?} cannot be registered: {source}")]
    Contract {
        /// The name of the tool.
        tool: String,
        /// The part of the declaration that is unsafe.
        source: ContractError,
    },
    /// The key is bound to no fields, or to fields that cannot exist.
    #[error(
        "the tool {tool:?} cannot be registered: of the fields that its key is bound to, {source} [declaration]"
    )]
    BoundFields {
        /// The name of the tool.
        tool: String,
        /// The error in the list of fields.
        source: BoundFieldsError,
    },
    /// The policy names too few reviewers, so that nobody could ever allow an approval or a compensation.
    #[error(
        "the tool {tool:?} cannot be registered: its undoing takes more reviewers than there are, or none; name as many reviewers as \
         have to be in favour, and at least one [declaration]"
    )]
    TooFewReviewers {
        /// The name of the tool.
        tool: String,
    },
    /// The method `contract()` declares another class or lookup than the contract type.
    #[error(
        "the tool {tool:?} declares another class or lookup in `contract()` than its `Contract` type: start from `contract::…::declaration()` [declaration]"
    )]
    OtherClass {
        /// The name of the tool.
        tool: String,
    },
    /// Another tool declares other limits for the same provider.
    #[error(
        "the tool {tool:?} declares another throttle for {provider:?} than a tool before it: a provider has one, declare it once and name it in both [declaration]"
    )]
    OtherThrottle {
        /// The name of the tool.
        tool: String,
        /// The name of the provider.
        provider: String,
    },
    /// The tool declares itself as the compensation of another tool.
    #[error(
        "the tool {tool:?} cannot be a compensation by itself: say of the tool that it undoes how it is undone [declaration]"
    )]
    NotATools {
        /// The name of the tool.
        tool: String,
    },
    /// The tool has a compensation, and its effect class leaves nothing that could be undone.
    #[error(
        "the tool {tool:?} is a {}, which leaves nothing behind that could be undone: take its `.compensate(…)` away, or \
         declare what it does to the world [declaration]",
        effect.name()
    )]
    NothingToUndo {
        /// The name of the tool.
        tool: String,
        /// The tool's effect class.
        effect: EffectClass,
    },
    /// The tool can be asked if an effect is undone, and cannot undo it.
    #[error(
        "the tool {tool:?} says how to find a compensation, but not how to compensate: give it a `.compensate(…)`, or take its \
         `.find_compensation(…)` away [declaration]"
    )]
    NoCompensation {
        /// The name of the tool.
        tool: String,
    },
    /// The tool names text that is no JSON pointer to a field as one that is not kept.
    #[error(
        "the tool {tool:?} cannot be registered: {field:?} is no JSON pointer to a field that can be redacted; write `/card/number` \
         [declaration]"
    )]
    NoFieldToRedact {
        /// The name of the tool.
        tool: String,
        /// The text that is no pointer.
        field: String,
    },
    /// The tool has no function that makes the call.
    #[error("the tool {tool:?} has no function that carries it out: give it a `.call(…)` [declaration]")]
    NoCall {
        /// The name of the tool.
        tool: String,
    },
    /// The tool needs an approval but names no package.
    #[error(
        "the tool {tool:?} is a {}, which needs an approval: give it a `.package(…)`, or another rule with `.policy(…)` or \
         `.without_approval()` [declaration]",
        effect.name()
    )]
    NoPackage {
        /// The name of the tool.
        tool: String,
        /// The tool's effect class.
        effect: EffectClass,
    },
}
