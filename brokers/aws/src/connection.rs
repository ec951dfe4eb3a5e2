//! The one configuration of the SDK behind a broker or a subscription: made when it is first needed.
//!
//! Invariant: the SDK repeats nothing by itself. Who publishes is told of every failure, and decides.

use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::settings::{AwsSettings, Credentials, wrong};

/// See the module.
pub(crate) struct Connection {
    settings: AwsSettings,
    made: OnceCell<SdkConfig>,
}

impl Connection {
    /// Checks the settings. Nobody is called.
    pub(crate) fn new(settings: AwsSettings) -> Result<Connection> {
        settings.check()?;
        Ok(Connection { settings, made: OnceCell::new() })
    }

    pub(crate) fn settings(&self) -> &AwsSettings {
        &self.settings
    }

    /// The configuration of the clients.
    ///
    /// # Errors
    /// `Config` if no region is known; `Timeout` if the machine was asked for it and did not answer in time.
    pub(crate) async fn config(&self, until: Instant) -> Result<&SdkConfig> {
        let made = timeout_at(until, self.made.get_or_try_init(|| self.make())).await;
        made.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, "open aws")
                .message("the machine was asked for its region and did not answer; set `region`"))
        })
    }

    async fn make(&self) -> Result<SdkConfig> {
        let settings = &self.settings;
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .http_client(client(settings)?)
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(settings.deadline).build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if let Some(region) = &settings.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &settings.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        match &settings.credentials {
            Credentials::Chain => {}
            Credentials::Profile(name) => loader = loader.profile_name(name),
            Credentials::Key { id, secret, session } => {
                let session = session.as_ref().map(|session| session.expose().to_owned());
                loader = loader.credentials_provider(aws_sdk_sqs::config::Credentials::new(
                    id,
                    secret.expose(),
                    session,
                    None,
                    "postrider",
                ));
            }
        }
        let config = loader.load().await;
        match config.region() {
            Some(_) => Ok(config),
            None => Err(wrong(
                "no region is known, and nothing was sent: set `region`, or AWS_REGION, or one in the profile",
            )),
        }
    }
}

/// The client under the SDK: ours, because the SDK's own brings a second library for TLS.
fn client(settings: &AwsSettings) -> Result<aws_sdk_sqs::config::SharedHttpClient> {
    let builder =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
    let Some(roots) = &settings.roots else { return Ok(builder.build_https()) };
    let unusable = |said: String| wrong(format!("`roots`, {}: {said}", roots.display()));
    let pem = std::fs::read(roots).map_err(|error| unusable(error.to_string()))?;
    let store = TrustStore::empty().with_pem_certificate(pem);
    let context = TlsContext::builder().with_trust_store(store).build();
    let context = context.map_err(|error| unusable(error.to_string()))?;
    Ok(builder.tls_context(context).build_https())
}
