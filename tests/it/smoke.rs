use counterfoil::ledger::Finding;
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

struct Add(Arc<AtomicU32>);
impl Tool for Add {
    const NAME: &'static str = "add";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = u32;
    type Output = u32;
    async fn call(&self, _: &Call, n: &u32) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(self.0.fetch_add(*n, Ordering::SeqCst) + n))
    }
}
impl Reconcile for Add {
    async fn reconcile(&self, _: &Call, _: &u32) -> Result<Finding<u32>, ToolError> {
        Ok(Finding::NotFound)
    }
}

async fn flow(ctx: Ctx, n: u32) -> Result<u32, Failure> {
    let mut sum = 0;
    for i in 0..n {
        let x = ctx.step("x", &i, |i| i + 1).await?;
        sum += ctx.call::<Add>(x).await?;
    }
    ctx.sleep(Duration::from_millis(500)).await?;
    let y: u32 = ctx
        .transaction("t", |c| {
            Box::pin(async move {
                sqlx::query("CREATE TABLE IF NOT EXISTS mine (a)")
                    .execute(&mut *c)
                    .await
                    .map_err(|e| Failure::new(e.to_string()))?;
                Ok(7)
            })
        })
        .await?;
    Ok(sum + y)
}

#[tokio::test(flavor = "multi_thread")]
async fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let engine = Engine::sqlite(dir.path().join("a.db"))
        .workflow("flow", 1, flow)
        .tool(Add(count.clone()))
        .start()
        .await
        .unwrap();
    let t = engine.tenant("acme").unwrap();
    let r = t.run(flow, 5).key("k").await.unwrap();
    println!("{r} {}", count.load(Ordering::SeqCst));
    let r2 = t.run(flow, 5).key("k").await.unwrap();
    assert_eq!(r, r2);
    assert!(t.run(flow, 6).key("k").await.is_err());
    println!("{:?}", t.runs(None).await.unwrap());
    engine.shutdown(Duration::from_secs(1)).await;
    drop(t);
    let engine = Engine::sqlite(dir.path().join("a.db"))
        .workflow("flow", 1, flow)
        .tool(Add(count.clone()))
        .start()
        .await
        .unwrap();
    let r3 = engine.tenant("acme").unwrap().run(flow, 5).key("k").await.unwrap();
    assert_eq!(r, r3);
}
