//! A company's own root, and the certificates that it has signed, as files that are gone with the value.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

/// Whoever signs.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

#[expect(clippy::new_without_default, reason = "a new one is made on purpose: no two are alike")]
#[expect(clippy::missing_panics_doc, reason = "each fails its test")]
impl Authority {
    /// A new one, whom nobody knows.
    pub fn new() -> Authority {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // Two certificates of one name are taken for one that signed itself.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let root = params.self_signed(&key).expect("a root");
        std::fs::write(folder.path().join("roots.pem"), root.pem()).expect("a file");
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    /// A file of its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Its own certificate.
    pub fn roots(&self) -> PathBuf {
        self.path("roots.pem")
    }

    /// Signs a certificate for this machine that is good until the end of a year: the files `NAME.pem` and
    /// `NAME.key`, in place of what stood there.
    pub fn sign(&self, name: &str, until: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 12, 31);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&files.0, certificate.pem()).expect("a file");
        std::fs::write(&files.1, key.serialize_pem()).expect("a file");
        files
    }

    /// The lines of a Kafka server that shows a certificate, and asks for one.
    pub fn of_kafka(&self) -> String {
        let (certificate, key) = self.sign("server", 2090);
        let read = |path| std::fs::read_to_string(path).expect("it was written");
        let store = self.path("store.pem");
        std::fs::write(&store, read(key) + &read(certificate)).expect("a file");
        format!(
            "listener.security.protocol.map=CLIENT:SSL,CONTROLLER:PLAINTEXT\n\
             ssl.keystore.type=PEM\nssl.keystore.location={}\n\
             ssl.truststore.type=PEM\nssl.truststore.location={}\nssl.client.auth=required\n",
            store.display(),
            self.roots().display()
        )
    }

    /// The lines of a Kafka server that shows a certificate and asks for a password: `broker`'s is `hush`, as it is; whoever
    /// proves one is among the users that it is started with.
    pub fn of_kafka_with_users(&self) -> String {
        let encrypted = self.of_kafka().replace("CLIENT:SSL", "CLIENT:SASL_SSL");
        let encrypted = encrypted.replace("ssl.client.auth=required", "ssl.client.auth=none");
        let package = "org.apache.kafka.common.security";
        format!(
            "{encrypted}sasl.mechanism.inter.broker.protocol=PLAIN\n\
             listener.name.client.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n\
             listener.name.client.plain.sasl.jaas.config={package}.plain.PlainLoginModule required \
             username=\"broker\" password=\"hush\" user_broker=\"hush\";\n\
             listener.name.client.scram-sha-512.sasl.jaas.config={package}.scram.ScramLoginModule required;\n"
        )
    }

    /// The lines of a NATS server that shows a certificate which is good until a year; `verify` asks clients for one
    /// as well.
    pub fn of_nats(&self, until: i32, verify: bool) -> String {
        let (certificate, key) = self.sign("server", until);
        format!(
            "tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {:?}, verify: {verify} }}",
            self.roots()
        )
    }
}
