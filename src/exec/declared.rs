//! The declarations under which calls went out. Each is a row that is written once, when it is new; records name it by
//! its number.

use std::sync::Arc;

use super::core::Core;
use super::declarations::id;
use super::operation::Operation;
use super::outcome::{ExecError, closed, failed, failed_unsent};
use crate::id::{DeclarationId, Tenant};
use crate::ledger::{Contract, ContractClass, Declaration, EffectClass, OperationKey, Record, Scopes, Terms};
use crate::store::{DECLARATION_KIND, Document, Refusal, Store as _, StoreError, Verdict};
use crate::tool::ToolSpec;

/// The number of rows that are read at a time.
const PAGE: u32 = 100;

/// The terms by which a call is settled: its declaration, combined with the present declaration of its tool.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) id: DeclarationId,
    pub(super) declaration: Arc<Declaration>,
    /// The effect and the contract that bind. Absent in the common case that the tool still declares the same.
    other: Option<Box<(EffectClass, Contract)>>,
    /// True if the tool still sends by the account, credential or device that the call was sent under. Under another
    /// one its key is no key.
    pub(super) key_in_scope: bool,
    /// True if the tool still looks up where the call was sent. Elsewhere, a lookup that shows nothing says nothing.
    pub(super) lookup_in_scope: bool,
}

impl Bound {
    fn of(declaration: Arc<Declaration>, op: &Operation, record: &Record, namespace: &str) -> Self {
        let spec = op.tool.spec();
        let (key_then, lookup_then) = scopes(record.scopes.as_deref(), declaration.scope.as_deref());
        let scopes_now = op.scopes();
        let (key_now, lookup_now) = scopes(scopes_now.as_deref(), spec.contract.scope.as_deref());
        let (key_in_scope, lookup_in_scope) = (key_then == key_now, lookup_then == lookup_now);
        let same = is_still(&declaration, spec, namespace);
        let other = (!same).then(|| {
            let effect = declaration.binding_effect(spec.effect);
            Box::new((effect, declaration.binding(&spec.contract)))
        });
        Self { id: record.declaration, declaration, other, key_in_scope, lookup_in_scope }
    }

    /// The terms of a call that has not gone out: the present declaration of its tool.
    const fn unsent(id: DeclarationId, declaration: Arc<Declaration>) -> Self {
        Self { id, declaration, other: None, key_in_scope: true, lookup_in_scope: true }
    }

    pub(super) fn effect(&self, op: &Operation) -> EffectClass {
        self.other.as_ref().map_or(op.tool.spec().effect, |other| other.0)
    }

    /// The differences between the tool's present declaration and that of the call, in words.
    pub(super) fn changes(&self, core: &Core, op: &Operation) -> Option<String> {
        self.other.as_ref()?;
        self.declaration.changes(&declaration(op.tool.spec(), &core.namespace))
    }

    pub(super) fn contract<'a>(&'a self, op: &'a Operation) -> &'a Contract {
        self.other.as_ref().map_or(&op.tool.spec().contract, |other| &other.1)
    }
}

/// A call that is being carried out or looked up, with the terms by which it is settled.
#[derive(Clone, Copy)]
pub(super) struct Settling<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) op: &'a Operation,
    pub(super) bound: &'a Bound,
}

impl<'a> Settling<'a> {
    pub(super) fn contract(&self) -> &'a Contract {
        self.bound.contract(self.op)
    }

    pub(super) fn effect(&self) -> EffectClass {
        self.bound.effect(self.op)
    }
}

impl Core {
    /// The present declaration of the operation's tool, written first if it is new.
    ///
    /// # Crash
    /// After a declaration is written: no record names it yet, and the next process finds it.
    pub(super) async fn declare(&self, op: &Operation) -> Result<Bound, ExecError> {
        let spec = op.tool.spec();
        if let Some((id, declaration)) = self.declarations.known().now.get(&spec.name)
            && is_still(declaration, spec, &self.namespace)
        {
            return Ok(Bound::unsent(*id, declaration.clone()));
        }
        // Boxed because this case is rare: every call would reserve its memory.
        Box::pin(self.declare_anew(&op.key, spec)).await
    }

    async fn declare_anew(&self, key: &OperationKey, spec: &ToolSpec) -> Result<Bound, ExecError> {
        let mut declared = self.write_down(&[spec]).await.map_err(|source| failed_unsent(key, source))?;
        // Cannot be absent: there is one declaration for each spec.
        let (id, declaration) = declared.pop().ok_or_else(|| closed(key))?;
        Ok(Bound::unsent(id, declaration))
    }

    /// Declares all registered tools when the process begins, so that their first calls need not wait for it.
    pub(super) async fn declare_all(&self) -> Result<(), StoreError> {
        self.write_down(&self.registry.specs()).await.map(drop)
    }

    /// Writes the new ones of these declarations. Returns the numbers of all, in their order.
    async fn write_down(
        &self,
        specs: &[&ToolSpec],
    ) -> Result<Vec<(DeclarationId, Arc<Declaration>)>, StoreError> {
        let declarations: Vec<_> = specs.iter().map(|spec| declaration(spec, &self.namespace)).collect();
        loop {
            self.read_declarations().await?;
            let (numbers, last) = {
                let known = self.declarations.known();
                let numbers: Vec<_> = declarations.iter().map(|one| known.number(one)).collect();
                (numbers, known.all.len())
            };
            let new: Vec<_> = declarations
                .iter()
                .zip(&numbers)
                .filter(|(_, number)| number.is_none())
                .map(|(one, _)| one)
                .collect();
            if !new.is_empty() {
                self.write_declarations(last, &new).await?;
                continue; // they are read back: another worker may have been first
            }
            let mut known = self.declarations.known();
            let declared: Vec<_> =
                numbers.into_iter().flatten().filter_map(|id| Some((id, known.at(id)?))).collect();
            let names = specs.iter().map(|spec| spec.name.clone());
            known.now.extend(names.zip(declared.iter().cloned()));
            return Ok(declared);
        }
    }

    /// The declarations that this worker has read: all that were written before it began, and perhaps later ones.
    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    pub(crate) fn declared(&self) -> Vec<Arc<Declaration>> {
        self.declarations.known().all.clone()
    }

    /// The terms by which the record's call is settled.
    pub(super) async fn bound(&self, op: &Operation, record: &Record) -> Result<Bound, ExecError> {
        let declaration = self.declaration(record).await.map_err(|source| failed(&record.key, source))?;
        Ok(Bound::of(declaration, op, record, &self.namespace))
    }

    /// The declaration under which the record's call went out.
    pub(super) async fn declaration(&self, record: &Record) -> Result<Arc<Declaration>, StoreError> {
        if let Some(declaration) = self.declarations.known().at(record.declaration) {
            return Ok(declaration);
        }
        // Another worker, or an earlier process, has written this declaration.
        Box::pin(self.read_declarations()).await?;
        self.declarations.known().at(record.declaration).ok_or_else(|| StoreError::Corrupt {
            row: format!("record {}", record.id),
            detail: format!("the declaration {} that it names is missing", record.declaration),
        })
    }

    /// The contract that binds the record's tool, from its declaration when the call went out and its present one. If
    /// the tool is not registered, a usual contract replaces the present one.
    pub(crate) async fn contract_of(&self, record: &Record) -> Result<Contract, StoreError> {
        let declaration = self.declaration(record).await?;
        Ok(match self.registry.known(record.operation.as_str()) {
            Some(tool) => declaration.binding(&tool.spec().contract),
            None => declaration.binding(&Contract::new(ContractClass::Lookup)),
        })
    }

    /// Reads the declarations that this worker does not know yet.
    async fn read_declarations(&self) -> Result<(), StoreError> {
        loop {
            let after = row_id(id(self.declarations.known().all.len()));
            let rows = self.group.document_list(&Tenant::ledger(), DECLARATION_KIND, &after, PAGE).await?;
            if rows.is_empty() {
                return Ok(());
            }
            for row in rows {
                let corrupt = |detail: String| StoreError::Corrupt {
                    row: format!("document {DECLARATION_KIND} {}", row.id),
                    detail,
                };
                let declaration =
                    serde_json::from_str(&row.body).map_err(|error| corrupt(error.to_string()))?;
                let mut known = self.declarations.known();
                let next = row_id(id(known.all.len() + 1));
                match row.id.cmp(&next) {
                    std::cmp::Ordering::Less => {} // another task has read it meanwhile
                    std::cmp::Ordering::Equal => known.all.push(Arc::new(declaration)),
                    std::cmp::Ordering::Greater => {
                        return Err(corrupt(format!("the declaration before it, {next}, is missing")));
                    }
                }
            }
        }
    }

    /// Writes new declarations under the next numbers: all of them, or none if another worker was first.
    async fn write_declarations(&self, last: usize, new: &[&Declaration]) -> Result<(), StoreError> {
        let now = self.now();
        let mut change = self.change(None);
        for (place, declaration) in new.iter().enumerate() {
            let id = row_id(id(last + place + 1));
            change.documents.push(Document::first(&Tenant::ledger(), DECLARATION_KIND, id, declaration, now));
        }
        match self.group.commit_one(change).await? {
            Verdict::Admitted | Verdict::Refused(Refusal::Exists) => Ok(()),
            Verdict::Refused(refusal) => Err(StoreError::Io { detail: refusal.to_string() }),
        }
    }
}

/// The scopes of the key and of the lookup: those of the call itself, or else those that its tool declares.
fn scopes<'a>(of_call: Option<&'a Scopes>, declared: Option<&'a str>) -> (Option<&'a str>, Option<&'a str>) {
    of_call.map_or((declared, declared), |scopes| (Some(&scopes.key), Some(&scopes.lookup)))
}

const fn terms(spec: &ToolSpec) -> Terms<'_> {
    Terms { effect: spec.effect, contract: &spec.contract, input_version: spec.input_version }
}

/// The present declaration of a tool.
fn declaration(spec: &ToolSpec, namespace: &str) -> Declaration {
    let declared = Declaration::of(spec.name.as_str(), terms(spec), namespace);
    Declaration { any_output: spec.any_output, bound: spec.bound.clone(), ..declared }
}

/// True if the tool still declares what `declaration` says.
fn is_still(declaration: &Declaration, spec: &ToolSpec, namespace: &str) -> bool {
    declaration.any_output == spec.any_output
        && declaration.bound == spec.bound
        && declaration.is_still(terms(spec), namespace)
}

/// The row's id, padded because rows are listed in the order of their ids.
fn row_id(id: DeclarationId) -> String {
    format!("{:010}", id.0)
}
