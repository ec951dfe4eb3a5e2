//! Connections: names are resolved, addresses are checked, and only then is anything called.
//!
//! Invariant: every new connection goes to an address that was checked after it was resolved, and to
//! that very address; a name that leads elsewhere the next time is checked again.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use postrider_core::{BoxFuture, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::WebhookSettings;
use crate::address::refusal;
use crate::target::{Rules, literal, refused, wrong};

/// What a connection may hold of an answer that is not read: the whole head must fit into it.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;
/// Names that the system's resolver looks up at once.
const LOOKUPS_MAX: usize = 32;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type HttpClient = Client<HttpsConnector<Guard>, Full<Bytes>>;

/// Finds the addresses of a name. The system's resolver is the default; a test has its own.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses, in the order in which they are to be tried.
    ///
    /// # Errors
    /// Whatever keeps the name from being resolved; it is tried again with the event's next attempt.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system. It blocks a thread for as long as it takes, which no deadline
/// can end, so the threads are counted: those of the runtime serve others too.
pub(crate) struct System {
    lookups: Arc<Semaphore>,
}

impl Default for System {
    fn default() -> System {
        System { lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let place = Arc::clone(&self.lookups).acquire_owned().await;
            let host = host.to_owned();
            // The place is the thread's: it is free again when the thread is, whoever went away.
            let lookup = tokio::task::spawn_blocking(move || {
                let _place = place;
                let found = (&*host, 0).to_socket_addrs()?;
                Ok(found.map(|address| address.ip()).collect())
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}

/// An address that may not be called. It travels through the client as a cause, and comes out as an
/// outcome.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A resolver that lets only addresses through that may be called.
#[derive(Clone)]
pub(crate) struct Checked {
    resolver: Arc<dyn Resolve>,
    allow_private: bool,
}

impl Checked {
    async fn resolve(self, name: Name) -> Result<std::vec::IntoIter<SocketAddr>, BoxError> {
        let mut found = self.resolver.resolve(name.as_str()).await?;
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
        }
        let mut refused_one = None;
        if !self.allow_private {
            found.retain(|address| match refusal(*address) {
                None => true,
                Some(kind) => {
                    refused_one = Some(refused(format_args!("{} of {name}", address), kind));
                    false
                }
            });
        }
        match refused_one {
            Some(message) if found.is_empty() => Err(Box::new(Refused(message))),
            _ => {
                found.truncate(ADDRESSES_MAX);
                let addresses: Vec<_> = found.into_iter().map(|ip| (ip, 0).into()).collect();
                Ok(addresses.into_iter())
            }
        }
    }
}

type BoxedConnect<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl Service<Name> for Checked {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxedConnect<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(self.clone().resolve(name))
    }
}

/// The connector under TLS. An address in place of a name passes no resolver, so it is checked here.
#[derive(Clone)]
pub(crate) struct Guard {
    connector: HttpConnector<Checked>,
    allow_private: bool,
}

impl Service<Uri> for Guard {
    type Response = <HttpConnector<Checked> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = BoxedConnect<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        if let Some(kind) = literal(host).and_then(refusal)
            && !self.allow_private
        {
            let error = Refused(refused(host, kind));
            return Box::pin(async { Err(error.into()) });
        }
        let connecting = self.connector.call(uri);
        Box::pin(async { connecting.await.map_err(Into::into) })
    }
}

/// What a client is made from: while it is the same, the client and its connections are kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    rules: Rules,
    deadline: Duration,
    idle: Duration,
    idle_max: usize,
    extra_roots: Vec<String>,
}

impl ClientSettings {
    pub(crate) fn of(settings: &WebhookSettings) -> ClientSettings {
        ClientSettings {
            rules: Rules::of(settings),
            deadline: settings.deadline,
            idle: settings.idle,
            // A pool is a host's, and a host may have many endpoints: with room for fewer, every
            // request beyond would open a connection of its own, and close it again.
            idle_max: settings.connections as usize,
            extra_roots: settings.extra_roots.clone(),
        }
    }

    /// Makes a client.
    ///
    /// # Errors
    /// `Config` if an extra root is no certificate.
    pub(crate) fn client(&self, resolver: &Arc<dyn Resolve>) -> Result<HttpClient> {
        let allow_private = self.rules.allow_private;
        let resolver = Checked { resolver: Arc::clone(resolver), allow_private };
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.enforce_http(false);
        connector.set_nodelay(true);
        // Shared out among the addresses of a name, so that a dead one leaves time for the next.
        connector.set_connect_timeout(Some(self.deadline));
        let builder = HttpsConnectorBuilder::new().with_tls_config(self.tls()?);
        let builder = match self.rules.allow_http {
            true => builder.https_or_http(),
            false => builder.https_only(),
        };
        let guard = Guard { connector, allow_private };
        let connector = builder.enable_all_versions().wrap_connector(guard);
        Ok(Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(self.idle)
            .pool_max_idle_per_host(self.idle_max)
            .http1_max_buf_size(BUFFER_BYTES_MAX)
            .http2_initial_stream_window_size(BUFFER_BYTES_MAX as u32)
            .http2_initial_connection_window_size(4 * BUFFER_BYTES_MAX as u32)
            .http2_max_header_list_size(BUFFER_BYTES_MAX as u32)
            .build(connector))
    }

    fn tls(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for (index, pem) in self.extra_roots.iter().enumerate() {
            let unreadable = || wrong(format!("extra_roots[{index}] is no certificate in PEM"));
            let mut count = 0;
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|_| unreadable())?;
                roots.add(certificate).map_err(|_| unreadable())?;
                count += 1;
            }
            if count == 0 {
                return Err(unreadable());
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong("TLS cannot be set up").source(e))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}
