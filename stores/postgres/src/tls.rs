//! Encryption: whose certificate is believed, and which one is shown.
//!
//! Files are read at every connection, so that a renewed certificate needs no restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_core::{Error, ErrorKind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What is asked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// Nothing: nobody listens, but nobody knows who answers (`prefer`, `require`).
    Nothing,
    /// That a known root signed it (`verify-ca`).
    Chain,
    /// And that it is for this host (`verify-full`).
    Name,
}

/// Which roots are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Those that browsers know.
    Public,
    /// Those in a file.
    File(PathBuf),
}

/// The certificate that is shown to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// How a connection is encrypted, if it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) check: Check,
    pub(crate) roots: Roots,
    pub(crate) identity: Option<Identity>,
}

impl Tls {
    /// What the driver encrypts with. `direct`: the server is spoken to in TLS from the first byte.
    pub(crate) fn connector(&self, direct: bool) -> Result<MakeRustlsConnect> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(internal)?;
        let builder = match self.check {
            Check::Name => builder.with_root_certificates(self.roots()?),
            Check::Chain => {
                let chain =
                    WebPkiServerVerifier::builder_with_provider(self.roots()?.into(), provider)
                        .build()
                        .map_err(internal)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(ChainAlone(chain)))
            }
            Check::Nothing => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            }
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = certificates(certificate)?;
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, e))?;
                builder.with_client_auth_cert(chain, secret).map_err(|e| unreadable(key, e))?
            }
        };
        if direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Roots::Public => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Roots::File(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| unreadable(path, e))?;
                }
            }
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(Error::new(ErrorKind::Config, "read certificate")
            .message("the file holds no certificate in PEM")
            .context("file", path.display())),
        found => found.map_err(|e| unreadable(path, e)),
    }
}

fn unreadable(path: &Path, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Config, "read certificate")
        .message("the file cannot be read, or is no certificate or key in PEM")
        .context("file", path.display())
        .source(cause)
}

fn internal(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "set up TLS").source(cause)
}

/// What a refused handshake says to whoever has to mend it; `None` where it was not about certificates.
pub(crate) fn refusal(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let told = rustls_error(error)?;
    let rustls::Error::InvalidCertificate(why) = told else {
        return Some(format!("the encrypted connection failed: {told}"));
    };
    Some(match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no root certificate that is known here signed the server's certificate; name the file \
             with the one that did: sslrootcert=PATH"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another host than the address names".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired; once it is renewed the connection succeeds"
                .to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; compare the clocks".to_owned()
        }
        other => format!("the server's certificate is refused: {other}"),
    })
}

/// TLS hides its error in one of input and output.
fn rustls_error<'a>(mut error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    loop {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let hidden = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        error = match hidden {
            Some(hidden) => hidden,
            None => error.source()?,
        };
    }
}

/// Believes anybody, as `sslmode=require` does elsewhere. The handshake's own signatures are checked.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Believes whatever a known root has signed, whichever host it is for.
#[derive(Debug)]
struct ChainAlone(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ChainAlone {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is looked at after everything else.
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
