//! Who is who: the cluster's own certificate authority, certificates that carry a role, and join tokens.
//!
//! ```text
//! DIR/ca.pem, ca.key               the authority, in the coordinator's data folder only
//! DIR/identities/ROLE-NAME/        cert.pem, key.pem, ca.pem: all that a process needs
//! DIR/tokens/HASH                  join tokens that were not used yet
//! ```
//!
//! A certificate's one DNS name is `NAME.ROLE.thetis`, so that TLS itself checks both.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};

use super::transport::{Peer, Role};

/// How long a certificate is valid.
const VALID: Duration = Duration::days(365);
/// How long the authority is valid.
const AUTHORITY_VALID: Duration = Duration::days(3650);
/// Clocks may differ by this much.
const CLOCK_SKEW: Duration = Duration::minutes(10);
/// How long a join token can be used.
const TOKEN_VALID: Duration = Duration::hours(24);
/// Random bytes of a token.
const TOKEN_BYTES: usize = 16;
const ZONE: &str = "thetis";

/// A certificate, a key or a folder of them that is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no certificate or no key.
    #[error("{path} is no {what}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
    },
    /// A name that cannot be in a certificate.
    #[error(
        "'{0}' is no name: it has 1 to 40 lower-case letters, digits and hyphens, and starts with a letter or digit"
    )]
    Name(String),
    /// A text that is no join token.
    #[error("this is no join token: `thetis cert token` makes one on the coordinator's machine")]
    Token,
    /// A certificate cannot be made.
    #[error("the certificate cannot be made")]
    Issue(#[from] rcgen::Error),
    /// The machine gives no random numbers.
    #[error("the machine gives no random numbers")]
    Random,
}

/// What a process proves itself with.
#[derive(Clone)]
pub struct Identity {
    /// Who it is.
    pub peer: Peer,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Arc<PrivateKeyDer<'static>>,
    pub(crate) authority: CertificateDer<'static>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// The three files of an identity.
#[derive(Clone)]
pub struct Pems {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// The authority's certificate.
    pub authority: String,
}

impl std::fmt::Debug for Pems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pems").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> IdentityError + use<> {
    let path = path.to_owned();
    |source| IdentityError::File { path, source }
}

/// A folder that only its owner can read.
///
/// # Errors
/// It cannot be made.
pub fn private_folder(path: &Path) -> Result<(), IdentityError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))
}

/// Writes a file in one step: whoever reads it sees all of it or the one before.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), IdentityError> {
    let draft = path.with_extension("draft");
    let written = || {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    written().map_err(at(path))
}

impl Pems {
    /// Reads the files in `folder`.
    ///
    /// # Errors
    /// They are not there, or cannot be read.
    pub fn load(folder: &Path) -> Result<Self, IdentityError> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).map_err(at(&folder.join(name)));
        Ok(Self { certificate: read("cert.pem")?, key: read("key.pem")?, authority: read("ca.pem")? })
    }

    /// Writes the files into `folder`, the key for its owner only.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), IdentityError> {
        private_folder(folder)?;
        write(&folder.join("key.pem"), &self.key, 0o600)?;
        write(&folder.join("ca.pem"), &self.authority, 0o644)?;
        write(&folder.join("cert.pem"), &self.certificate, 0o644)
    }
}

impl Identity {
    /// Reads the identity in `folder`.
    ///
    /// # Errors
    /// A file is not there or not what it should be.
    pub fn load(folder: &Path) -> Result<Self, IdentityError> {
        Self::of(&Pems::load(folder)?, folder)
    }

    /// The identity in three texts; `folder` is where they come from.
    ///
    /// # Errors
    /// One of them is not what it should be.
    pub fn of(pems: &Pems, folder: &Path) -> Result<Self, IdentityError> {
        let malformed = |name: &str, what| IdentityError::Malformed { path: folder.join(name), what };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pems.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| malformed("cert.pem", "certificate"))?;
        let peer = chain.first().and_then(peer_of).ok_or_else(|| malformed("cert.pem", "certificate of a cluster"))?;
        let key = PrivateKeyDer::from_pem_slice(pems.key.as_bytes()).map_err(|_| malformed("key.pem", "key"))?;
        let authority = CertificateDer::from_pem_slice(pems.authority.as_bytes());
        let authority = authority.map_err(|_| malformed("ca.pem", "certificate"))?;
        Ok(Self { peer, chain, key: Arc::new(key), authority })
    }
}

/// Who a certificate is for.
pub(crate) fn peer_of(certificate: &CertificateDer<'_>) -> Option<Peer> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    let (name, None) = (names.next()?, names.next()) else { return None };
    let (name, rest) = name.split_once('.')?;
    let role = rest.strip_suffix(ZONE)?.strip_suffix('.')?;
    Some(Peer::new(Role::of(role)?, name))
}

/// The name that TLS checks.
pub(crate) fn dns_name(peer: &Peer) -> String {
    format!("{}.{}.{ZONE}", peer.name, peer.role.name())
}

pub(crate) fn check_name(name: &str) -> Result<(), IdentityError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let valid =
        (1..=40).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('-') && !name.ends_with('-');
    if valid { Ok(()) } else { Err(IdentityError::Name(name.to_owned())) }
}

/// The certificate authority of a cluster.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Authority {
    /// The authority in a data folder; a new one if there is none.
    ///
    /// # Errors
    /// Files that cannot be read or written, or are not what they should be.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        private_folder(folder)?;
        if !folder.join("ca.pem").exists() {
            Self::create(folder)?;
        }
        Self::load(folder)
    }

    /// The authority in a data folder.
    ///
    /// # Errors
    /// There is none, or its files are not what they should be.
    pub fn load(folder: &Path) -> Result<Self, IdentityError> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).map_err(at(&folder.join(name)));
        let (certificate, key) = (read("ca.pem")?, read("ca.key")?);
        let malformed = |name: &str, what| IdentityError::Malformed { path: folder.join(name), what };
        let key = KeyPair::from_pem(&key).map_err(|_| malformed("ca.key", "key"))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, key).map_err(|_| malformed("ca.pem", "certificate"))?;
        Ok(Self { folder: folder.to_owned(), issuer, certificate })
    }

    fn create(folder: &Path) -> Result<(), IdentityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Thetis cluster authority");
        let now = OffsetDateTime::now_utc();
        (params.not_before, params.not_after) = (now - CLOCK_SKEW, now + AUTHORITY_VALID);
        let certificate = params.self_signed(&key)?;
        // The certificate last: who finds it finds the key.
        write(&folder.join("ca.key"), &key.serialize_pem(), 0o600)?;
        write(&folder.join("ca.pem"), &certificate.pem(), 0o644)
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues an identity.
    ///
    /// # Errors
    /// A name that cannot be in a certificate.
    pub fn issue(&self, peer: &Peer) -> Result<Pems, IdentityError> {
        self.issue_until(peer, OffsetDateTime::now_utc() + VALID)
    }

    /// Issues an identity that is valid until `end`, for at most a year.
    ///
    /// # Errors
    /// A name that cannot be in a certificate.
    pub fn issue_until(&self, peer: &Peer, end: OffsetDateTime) -> Result<Pems, IdentityError> {
        let key = KeyPair::generate()?;
        let mut params = params_of(peer)?;
        params.not_before = end - VALID - CLOCK_SKEW;
        params.not_after = end;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Pems { certificate: certificate.pem(), key: key.serialize_pem(), authority: self.certificate.clone() })
    }

    /// The certificate for a request that was made with [`Request::new`].
    ///
    /// # Errors
    /// It is no request, or the name cannot be in a certificate.
    pub fn sign(&self, peer: &Peer, request: &str) -> Result<String, IdentityError> {
        let mut request = CertificateSigningRequestParams::from_pem(request)?;
        // What it asks for does not matter, only its key does.
        request.params = params_of(peer)?;
        let now = OffsetDateTime::now_utc();
        (request.params.not_before, request.params.not_after) = (now - CLOCK_SKEW, now + VALID);
        Ok(request.signed_by(&self.issuer)?.pem())
    }

    /// The identity of this role and name in the data folder; a new one if there is none, or if less than a
    /// third of its time is left.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn identity(&self, peer: &Peer) -> Result<(Identity, PathBuf), IdentityError> {
        let folder = self.folder.join("identities").join(format!("{}-{}", peer.role.name(), peer.name));
        let renew = folder
            .join("cert.pem")
            .metadata()
            .and_then(|meta| meta.modified())
            .map_or(true, |written| OffsetDateTime::from(written) + VALID * 2 / 3 < OffsetDateTime::now_utc());
        if renew {
            self.issue(peer)?.save(&folder)?;
        }
        Ok((Identity::load(&folder)?, folder))
    }

    /// Makes a token with which one worker can join within a day.
    ///
    /// # Errors
    /// It cannot be kept.
    pub fn new_token(&self) -> Result<Token, IdentityError> {
        let mut secret = [0; TOKEN_BYTES];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut secret)
            .map_err(|_| IdentityError::Random)?;
        let authority = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let authority = authority
            .map_err(|_| IdentityError::Malformed { path: self.folder.join("ca.pem"), what: "certificate" })?;
        let token = Token { secret: hex(&secret), authority: fingerprint(&authority) };
        let tokens = self.folder.join("tokens");
        private_folder(&tokens)?;
        let end = (OffsetDateTime::now_utc() + TOKEN_VALID).unix_timestamp();
        write(&tokens.join(hashed(&token.secret)), &end.to_string(), 0o600)?;
        Ok(token)
    }

    /// Whether the secret of a token is valid; from now on it is not.
    pub fn use_token(&self, secret: &str) -> bool {
        let path = self.folder.join("tokens").join(hashed(secret));
        let end = fs::read_to_string(&path).ok().and_then(|end| end.parse().ok());
        // Of several that come at once, one removes it.
        let removed = fs::remove_file(&path).is_ok();
        removed && end.is_some_and(|end: i64| end >= OffsetDateTime::now_utc().unix_timestamp())
    }
}

fn params_of(peer: &Peer) -> Result<CertificateParams, IdentityError> {
    check_name(&peer.name)?;
    let mut params = CertificateParams::new(vec![dns_name(peer)])?;
    params.distinguished_name.push(DnType::CommonName, peer.to_string());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    let mut serial = [0; 16];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut serial).map_err(|_| IdentityError::Random)?;
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

/// A key that a new worker has made, and its request for a certificate.
pub struct Request {
    key: KeyPair,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

impl Request {
    /// A new key.
    ///
    /// # Errors
    /// None can be made.
    pub fn new() -> Result<Self, IdentityError> {
        Ok(Self { key: KeyPair::generate()? })
    }

    /// What is sent: the key stays here.
    ///
    /// # Errors
    /// None in practice.
    pub fn pem(&self) -> Result<String, IdentityError> {
        Ok(CertificateParams::new(Vec::<String>::new())?.serialize_request(&self.key)?.pem()?)
    }

    /// The identity, with the certificate that came.
    pub fn granted(&self, certificate: String, authority: String) -> Pems {
        Pems { certificate, key: self.key.serialize_pem(), authority }
    }
}

/// A token with which a worker joins: a secret that can be used once, and the fingerprint of the authority,
/// by which the worker knows the coordinator.
#[derive(Clone)]
pub struct Token {
    /// Shown to the coordinator.
    pub secret: String,
    /// The hash of the authority's certificate.
    pub authority: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thetis-{}-{}", self.secret, self.authority)
    }
}

impl std::str::FromStr for Token {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let is_hex = |text: &str, bytes: usize| text.len() == 2 * bytes && text.bytes().all(|b| b.is_ascii_hexdigit());
        let parts = text.trim().strip_prefix("thetis-").and_then(|rest| rest.split_once('-'));
        match parts {
            Some((secret, authority))
                if is_hex(secret, TOKEN_BYTES) && is_hex(authority, digest::SHA256_OUTPUT_LEN) =>
            {
                Ok(Self { secret: secret.to_owned(), authority: authority.to_owned() })
            }
            _ => Err(IdentityError::Token),
        }
    }
}

/// The hash of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    hex(digest::digest(&digest::SHA256, certificate).as_ref())
}

fn hashed(secret: &str) -> String {
    hex(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
