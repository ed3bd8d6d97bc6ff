//! Notifications (GUARD-2): which notice is the same, whoever approves it and however often, on both stores.

use std::sync::Arc;

use counterfoil::flow::EngineBuilder;
use counterfoil::guard::notification::Identity;
use counterfoil::tool::{Call, Done, NeedsApproval, Tool, ToolError, contract, effect};
use counterfoil::{ApprovalSubject, Ctx, Failure, Key, Tenant};
use serde::{Deserialize, Serialize};

use crate::flow::lives::NAME;
use crate::flow::world::{Process, World};
use crate::guard::approval::approve;
use crate::store::postgres::Schema;

#[derive(Clone, Serialize, Deserialize)]
struct Letter {
    case: String,
    draft: u32,
    to: String,
}

impl Letter {
    fn identity(&self) -> Identity {
        Identity::about(&self.case, self.draft.to_string()).to(&self.to).kind("decision")
    }
}

struct SendLetter(Arc<World>);

impl Tool for SendLetter {
    const NAME: &'static str = "send_letter";
    type Effect = effect::Notification;
    type Contract = contract::ReplaysKey;
    type Input = Letter;
    type Output = u32;

    fn key(&self, letter: &Letter) -> Option<Key> {
        Some(letter.identity().key(Self::NAME))
    }

    async fn call(&self, call: &Call, letter: &Letter) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(self.0.happen("letter", call.key(), &format!("{} {}", letter.to, letter.draft))))
    }
}

impl NeedsApproval for SendLetter {
    fn package(&self, letter: &Letter) -> ApprovalSubject {
        letter.identity().package("Dear Ann")
    }
}

fn letter(to: &str, draft: u32) -> Letter {
    Letter { case: "17".into(), draft, to: to.into() }
}

/// One notice that is approved twice, another draft of it, the same to somebody else, and the first one again on purpose.
async fn sends(ctx: Ctx, (): ()) -> Result<[u32; 5], Failure> {
    let ann = letter("ann", 1);
    let approved = async |id: &str, letter: &Letter| {
        ctx.approval(letter.identity().package("Dear Ann")).id(id).reviewers(["bob", "carl"]).await
    };
    let (first, second) = (approved("first", &ann).await?, approved("second", &ann).await?);
    let one = ctx.call::<SendLetter>(ann.clone()).approved_by(&first).await?;
    let same = ctx.call::<SendLetter>(ann.clone()).approved_by(&second).await?;
    let mut others = [0; 2];
    for (number, letter) in others.iter_mut().zip([letter("ann", 2), letter("eve", 1)]) {
        let approval = approved(&format!("{} {}", letter.to, letter.draft), &letter).await?;
        *number = ctx.call::<SendLetter>(letter).approved_by(&approval).await?;
    }
    let again = ann.identity().key(SendLetter::NAME).revision(1);
    let again = ctx.call::<SendLetter>(ann).approved_by(&second).key(again).await?;
    Ok([one, same, others[0], others[1], again])
}

fn engine(world: &Arc<World>, schema: &Schema, shared: bool) -> EngineBuilder {
    let engine = world.engine_in(schema, shared);
    engine.tool(SendLetter(world.clone())).workflow(NAME, 1, sends)
}

#[test]
fn a_second_approval_of_a_notice_is_not_a_second_notice() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let process = Process::start(&world, engine(&world, &schema, shared));
        let [one, same, draft, recipient, again] = process.on(async {
            let acme = process.acme();
            let run = acme.run(sends, ()).start().await.unwrap();
            for by in ["bob", "carl", "bob", "bob"] {
                process.until(async |acme| !acme.reviews(None).await.unwrap().is_empty()).await;
                let review = acme.reviews(None).await.unwrap().remove(0);
                approve(&acme, &review, by).await.unwrap();
            }
            run.result().await.unwrap()
        });
        assert_eq!(one, same, "the first result");
        let sent = world.effects("letter");
        assert_eq!(sent, ["ann 1", "ann 2", "eve 1", "ann 1"], "shared: {shared}");
        assert_eq!([draft, recipient, again].map(|number| number > one), [true; 3]);
        let key = letter("ann", 1).identity().key(SendLetter::NAME).render().unwrap();
        let record = process.on(process.engine().executor().record(&Tenant::new("acme").unwrap(), &key));
        let record = record.unwrap().unwrap().0;
        assert_eq!(record.approval.unwrap().by, "bob", "the approval under which it went out");
        process.shut_down();
    }
}

#[test]
fn a_notice_to_nobody_has_no_key() {
    for incomplete in
        [Identity::about("17", "1"), Identity::about("", "1").to("ann"), Identity::about("17", "").to("ann")]
    {
        assert!(incomplete.key("send").render().is_err(), "{incomplete:?}");
    }
    let one = |identity: Identity| identity.key("send").render().unwrap();
    let ann = || Identity::about("17", "1").to("ann");
    assert_eq!(one(ann()), one(ann().kind("notice")));
    assert_ne!(one(ann()), one(ann().kind("reminder")));
    assert_ne!(one(Identity::about("1", "71").to("ann")), one(ann()));
}
