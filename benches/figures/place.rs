//! The places of measured databases.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::options::Options;

/// The kind of store that is measured.
#[derive(Clone, Copy)]
pub(crate) enum Database {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
}

/// The place of one database.
#[derive(Clone)]
pub(crate) enum Place {
    File(PathBuf),
    /// A schema on a server.
    #[cfg(feature = "postgres")]
    Schema {
        url: String,
        name: String,
    },
}

impl Place {
    /// The file of a row that is measured on SQLite alone.
    pub(crate) fn file(&self) -> &Path {
        match self {
            Self::File(file) => file,
            #[cfg(feature = "postgres")]
            Self::Schema { .. } => panic!("this row is measured on SQLite"),
        }
    }
}

impl From<PathBuf> for Place {
    fn from(file: PathBuf) -> Self {
        Self::File(file)
    }
}

/// The databases of one row, removed when dropped.
pub(crate) enum Home {
    Folder(TempDir),
    #[cfg(feature = "postgres")]
    Server(Server),
}

impl Home {
    pub(crate) fn of(database: Database, options: &Options) -> Result<Self, String> {
        match database {
            Database::Sqlite => Ok(Self::Folder(options.folder())),
            #[cfg(feature = "postgres")]
            Database::Postgres => Server::new().map(Self::Server),
        }
    }

    pub(crate) fn place(&self, name: &str) -> Place {
        match self {
            Self::Folder(folder) => Place::File(folder.path().join(format!("{name}.db"))),
            #[cfg(feature = "postgres")]
            Self::Server(server) => Place::Schema { url: server.url.clone(), name: server.schema(name) },
        }
    }
}

/// A server, and the prefix of this row's schemas.
#[cfg(feature = "postgres")]
pub(crate) struct Server {
    url: String,
    prefix: String,
}

#[cfg(feature = "postgres")]
impl Server {
    fn new() -> Result<Self, String> {
        Ok(Self { url: url()?, prefix: format!("figures_{}", counterfoil::client_key().replace('-', "_")) })
    }

    fn schema(&self, name: &str) -> String {
        format!("{}_{name}", self.prefix)
    }

    async fn clear(&self) -> Result<(), sqlx::Error> {
        use sqlx::{AssertSqlSafe, Connection as _};
        let mut connection = sqlx::PgConnection::connect(&self.url).await?;
        let schemas: Vec<String> =
            sqlx::query_scalar("SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, $1)")
                .bind(&self.prefix)
                .fetch_all(&mut connection)
                .await?;
        for schema in schemas {
            let drop = format!("SET lock_timeout = '5s'; DROP SCHEMA {schema} CASCADE");
            sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await?;
        }
        connection.close().await
    }
}

#[cfg(feature = "postgres")]
impl Drop for Server {
    /// Drops the schemas, which would stay in a server that outlives this program.
    fn drop(&mut self) {
        if let Err(error) = crate::speed::current_thread().block_on(self.clear()) {
            eprintln!("the schemas {}… stay: {error}", self.prefix);
        }
    }
}

/// The server's URL. A missing server is a failure, never a row that is left out in silence.
#[cfg(feature = "postgres")]
pub(crate) fn url() -> Result<String, String> {
    std::env::var("TEST_DATABASE_URL").map_err(|_| {
        "no PostgreSQL: TEST_DATABASE_URL names none; run `.ci/with-postgres --durable cargo bench …`, which brings one"
            .to_owned()
    })
}
