//! Writes of other processes: an engine hears of each, although it looks at the log only.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::store::Store;
use counterfoil::store::sqlite::{Options, Sqlite};
use counterfoil::{Clock as _, SystemClock};

use super::{Folder, plain, run};
use crate::world::soon;

/// So long a commit is held up: for several looks at the log.
const HELD: Duration = Duration::from_millis(400);

/// A commit writes the log, syncs it, and can be read only then. The sync of a busy disk took longer than two looks at the
/// log: the engine never heard of the commit, and a run that a client had started stood still until the next write.
#[tokio::test]
async fn a_commit_is_heard_of_however_long_the_disk_holds_it_up() {
    for busy_timeout in [Duration::ZERO, Duration::from_secs(5)] {
        let folder = Folder::new();
        let options = Options { busy_timeout, ..Options::default() };
        let store: Arc<dyn Store> = Arc::new(Sqlite::open_with(folder.database(), options).await.unwrap());
        let mut other = plain(&folder.database()).await;
        run(&mut other, "CREATE TABLE other (x); PRAGMA wal_checkpoint(RESTART)").await;
        store.woken().await.unwrap();

        let log = File::options().write(true).open(folder.database().with_extension("db-wal")).unwrap();
        let size = log.metadata().unwrap().len();
        let listens = store.clone();
        let woken = tokio::spawn(async move { listens.woken().await });
        run(&mut other, "BEGIN IMMEDIATE; INSERT INTO other VALUES (1)").await;
        let changed = log.metadata().unwrap().modified().unwrap() + Duration::from_secs(1);
        log.set_modified(changed).unwrap(); // its pages are in the log, which is being synced
        SystemClock.sleep(HELD).await;
        assert!(!woken.is_finished(), "nothing can be read yet");
        run(&mut other, "COMMIT").await;
        log.set_modified(changed).unwrap(); // the end of the sync leaves no sign in the log
        assert_eq!(log.metadata().unwrap().len(), size, "the log is written anew from its beginning");
        soon("nobody hears of the commit".to_owned(), async { woken.await.unwrap() }).await;
    }
}
