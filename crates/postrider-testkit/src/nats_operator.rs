//! An operator of NATS with an account and a user: who signs for them, and the user's file of credentials.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;

/// What an account may do: everything, JetStream included.
const LIMITS: &str = "{\"subs\":-1,\"data\":-1,\"payload\":-1,\"imports\":-1,\"exports\":-1,\"wildcards\":true,\"conn\":-1,\
                      \"leaf\":-1,\"mem_storage\":-1,\"disk_storage\":-1,\"streams\":-1,\"consumer\":-1}";

/// Whoever vouches for an account.
#[derive(Debug)]
pub struct NatsOperator {
    operator: KeyPair,
    account: KeyPair,
    user: KeyPair,
}

#[expect(clippy::new_without_default, reason = "a new one is made on purpose: no two are alike")]
#[expect(clippy::missing_panics_doc, reason = "each fails its test")]
impl NatsOperator {
    /// A new one, whom nobody knows.
    pub fn new() -> NatsOperator {
        NatsOperator {
            operator: KeyPair::new_operator(),
            account: KeyPair::new_account(),
            user: KeyPair::new_user(),
        }
    }

    /// The lines of a server that believes it.
    pub fn config(&self) -> String {
        let system = KeyPair::new_account();
        let claims = |limits: &str| format!("{{\"type\":\"account\",\"version\":2{limits}}}");
        let of = |account: &KeyPair, name: &str, claims: &str| {
            jwt(&self.operator, &account.public_key(), name, claims)
        };
        format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}",
            jwt(
                &self.operator,
                &self.operator.public_key(),
                "o",
                "{\"type\":\"operator\",\"version\":2}"
            ),
            system.public_key(),
            system.public_key(),
            of(&system, "system", &claims("")),
            self.account.public_key(),
            of(&self.account, "shop", &claims(&format!(",\"limits\":{LIMITS}"))),
        )
    }

    /// The user's file of credentials.
    pub fn creds(&self) -> String {
        self.signed_by(&self.account)
    }

    /// The same, signed by an account that nobody vouched for.
    pub fn creds_of_a_stranger(&self) -> String {
        self.signed_by(&KeyPair::new_account())
    }

    /// The user's secret, which stands in the file.
    pub fn seed(&self) -> String {
        self.user.seed().expect("a user has one")
    }

    fn signed_by(&self, account: &KeyPair) -> String {
        let claims = "{\"type\":\"user\",\"version\":2,\"subs\":-1,\"data\":-1,\"payload\":-1}";
        let token = jwt(account, &self.user.public_key(), "relay", claims);
        let line = |what: &str, word: &str| format!("-----{word} {what}-----\n");
        [
            line("NATS USER JWT", "BEGIN"),
            format!("{token}\n------END NATS USER JWT------\n\n"),
            line("USER NKEY SEED", "BEGIN"),
            format!("{}\n------END USER NKEY SEED------\n", self.seed()),
        ]
        .concat()
    }
}

/// A signed claim.
fn jwt(issuer: &KeyPair, subject: &str, name: &str, nats: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let header = encode("{\"typ\":\"JWT\",\"alg\":\"ed25519-nkey\"}");
    let claims = format!(
        "{{\"jti\":\"{name}\",\"iat\":1600000000,\"iss\":\"{}\",\"name\":\"{name}\",\"sub\":\"{subject}\",\
         \"nats\":{nats}}}",
        issuer.public_key()
    );
    let signed = format!("{header}.{}", encode(&claims));
    let signature = issuer.sign(signed.as_bytes()).expect("it has a seed");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}
