//! The connection: clients of the tables and of their streams, made at the first call.
//!
//! Invariant: every call has a time limit, and what it fails with is one of our errors.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use postrider_core::{Error, Result};
use tokio::sync::OnceCell;

use crate::error::failed;
use crate::settings::{Names, Settings};

/// The longest a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// How often a call is made at most: throttling and a lost connection are tried again by the client.
const ATTEMPTS_MAX: u32 = 3;

/// Clients, and what the tables are called. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    clients: OnceCell<Clients>,
}

#[derive(Clone)]
struct Clients {
    tables: aws_sdk_dynamodb::Client,
    streams: aws_sdk_dynamodbstreams::Client,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("settings", &self.inner.settings).finish()
    }
}

impl Connection {
    /// A connection that is made at its first call, with credentials as the environment has them:
    /// variables, the profile, or the machine's role. An emulator on this machine needs none.
    ///
    /// # Errors
    /// `Config` if a name is none, or the endpoint has credentials in it.
    pub fn new(settings: Settings) -> Result<Connection> {
        settings.check()?;
        let inner = Inner { settings, clients: OnceCell::new() };
        Ok(Connection { inner: Arc::new(inner) })
    }

    /// The same on clients that are there: the application's own.
    ///
    /// # Errors
    /// `Config` if a name is none.
    pub fn on(
        tables: aws_sdk_dynamodb::Client,
        streams: aws_sdk_dynamodbstreams::Client,
        names: Names,
    ) -> Result<Connection> {
        names.check()?;
        let region = tables.config().region().map(ToString::to_string);
        let settings = Settings { region, ..Settings::new(String::new(), names) };
        let clients = OnceCell::new_with(Some(Clients { tables, streams }));
        Ok(Connection { inner: Arc::new(Inner { settings, clients }) })
    }

    /// What the tables are called.
    pub fn names(&self) -> &Names {
        &self.inner.settings.names
    }

    pub(crate) fn name(&self) -> String {
        self.inner.settings.name()
    }

    /// The client of the tables.
    pub async fn tables(&self) -> &aws_sdk_dynamodb::Client {
        &self.clients().await.tables
    }

    /// The client of the streams.
    pub async fn streams(&self) -> &aws_sdk_dynamodbstreams::Client {
        &self.clients().await.streams
    }

    async fn clients(&self) -> &Clients {
        let settings = &self.inner.settings;
        self.inner.clients.get_or_init(|| Box::pin(connect(settings))).await
    }
}

async fn connect(settings: &Settings) -> Clients {
    let provider = Provider::Rustls(CryptoMode::Ring);
    let http = aws_smithy_http_client::Builder::new().tls_provider(provider).build_https();
    let times = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIME_MAX)
        .operation_attempt_timeout(settings.call_time_max / 2)
        .operation_timeout(settings.call_time_max)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(http)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX))
        .timeout_config(times);
    if let Some(region) = &settings.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &settings.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if settings.is_local() {
        loader =
            loader.credentials_provider(Credentials::new("local", "local", None, None, "local"));
    }
    let config = loader.load().await;
    Clients {
        tables: aws_sdk_dynamodb::Client::new(&config),
        streams: aws_sdk_dynamodbstreams::Client::new(&config),
    }
}

/// Waits for a call, off the caller's stack (the clients' futures are large), and says what failed.
pub(crate) async fn call<T, E>(
    operation: &'static str,
    table: &str,
    sent: impl Future<Output = Result<T, SdkError<E>>>,
) -> Result<T>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    match Box::pin(sent).await {
        Ok(answer) => Ok(answer),
        Err(error) => Err(failed(operation, table, error)),
    }
}

/// An attribute or part of an answer that the service always gives.
pub(crate) fn absent(operation: &'static str, what: &str) -> Error {
    Error::new(postrider_core::ErrorKind::Corrupt, operation)
        .message(format!("the answer has no {what}"))
}
