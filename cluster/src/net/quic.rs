//! QUIC: mutual TLS 1.3, one connection per pair of processes, a stream per channel.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};

use super::identity::{Identity, Token, dns_name, fingerprint, peer_of};
use super::transport::{Connection, IDLE, NetError, Peer, Pending, ReceiveHalf, SendHalf, Stream, Transport};

const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// A handshake must be done within this time.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long something is kept of a connection that has failed.
const DRAIN: Duration = Duration::from_secs(3);
/// Handshakes that may be under way; the next ones are refused.
const MAX_HANDSHAKES: usize = 128;
/// From so many on, who begins another one must first show that its address is real.
const RETRY_FROM: usize = 16;
/// Connections of processes without a certificate, which can only hand in a join token.
const MAX_STRANGERS: usize = 16;
/// How long a process without a certificate may stay.
const STRANGER: Duration = Duration::from_secs(10);
/// Streams that the other side may have open.
const MAX_STREAMS: u32 = 1024;
/// Bytes that may wait in a stream, and to be acknowledged. A connection has no bound of its own: streams that
/// nobody reads must not keep the others from moving.
const STREAM_WINDOW: u32 = 2 << 20;
const SEND_WINDOW: u64 = 16 << 20;
/// What the other side may send, and how many streams it may open, until it is known who it is.
const STRANGERS_WINDOW: u32 = 256 << 10;
const STRANGERS_STREAMS: u32 = 2;
/// Bytes of the socket's buffers that are asked for; the system may give fewer.
const SOCKET_BUFFER: usize = 8 << 20;
/// The largest packet that is tried. A socket has room for 2,048 of them.
const MAX_PACKET: u16 = 16_000;

const ALPN: &[u8] = b"thetis";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn broken(error: impl std::fmt::Display) -> NetError {
    NetError::Protocol(format!("TLS cannot be set up: {error}"))
}

/// Who may connect to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guests {
    /// Nobody: it only connects to others.
    None,
    /// Who has a certificate of the cluster.
    Members,
    /// Strangers too, to join.
    Strangers,
}

/// An endpoint.
#[derive(Debug)]
pub struct Quic {
    endpoint: Endpoint,
    identity: Identity,
    incoming: Mutex<mpsc::Receiver<Arc<dyn Connection>>>,
}

impl Quic {
    /// Opens an endpoint on `listen`. Must be called within a runtime.
    ///
    /// # Errors
    /// The address is taken or not of this machine.
    pub fn open(identity: Identity, listen: SocketAddr, guests: Guests) -> Result<Self, NetError> {
        let socket = bind(listen).map_err(|error| NetError::Unreachable {
            address: listen.to_string(),
            reason: format!("cannot listen there: {error}"),
        })?;
        let server = match guests {
            Guests::None => None,
            guests => Some(server_config(&identity, guests == Guests::Strangers)?),
        };
        let endpoint = endpoint(socket, server)?;
        let (sender, incoming) = mpsc::channel(64);
        tokio::spawn(accept_all(endpoint.clone(), sender));
        Ok(Self { endpoint, identity, incoming: Mutex::new(incoming) })
    }

    /// An endpoint that only connects to others.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn client(identity: Identity) -> Result<Self, NetError> {
        Self::open(identity, SocketAddr::from(([0, 0, 0, 0], 0)), Guests::None)
    }

    /// Ends all connections.
    pub async fn close(&self) {
        self.endpoint.close(VarInt::from_u32(0), b"the process ends");
        let _ = tokio::time::timeout(Duration::from_millis(200), self.endpoint.wait_idle()).await;
    }
}

fn bind(listen: SocketAddr) -> std::io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(listen), Type::DGRAM, Some(Protocol::UDP))?;
    if listen.is_ipv6() {
        socket.set_only_v6(false).ok();
    }
    // As much as the system gives.
    socket.set_recv_buffer_size(SOCKET_BUFFER).ok();
    socket.set_send_buffer_size(SOCKET_BUFFER).ok();
    socket.bind(&listen.into())?;
    Ok(socket.into())
}

fn endpoint(socket: std::net::UdpSocket, server: Option<quinn::ServerConfig>) -> Result<Endpoint, NetError> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(MAX_PACKET).map_err(broken)?;
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).map_err(broken)
}

fn transport_config() -> Result<Arc<TransportConfig>, NetError> {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(MAX_PACKET);
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE).map_err(broken)?))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_bidi_streams(STRANGERS_STREAMS.into())
        .max_concurrent_uni_streams(0_u8.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(STRANGERS_WINDOW.into())
        .send_window(SEND_WINDOW)
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(AckFrequencyConfig::default()));
    Ok(Arc::new(config))
}

fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, NetError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).map_err(broken)?;
    Ok(Arc::new(roots))
}

fn server_config(identity: &Identity, strangers: bool) -> Result<quinn::ServerConfig, NetError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(&identity.authority)?, provider());
    let verifier = if strangers { verifier.allow_unauthenticated() } else { verifier };
    let mut chain = identity.chain.clone();
    // Who joins knows the authority by its hash only.
    chain.push(identity.authority.clone());
    let mut tls = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(broken)?
        .with_client_cert_verifier(verifier.build().map_err(broken)?)
        .with_single_cert(chain, identity.key.clone_key())
        .map_err(broken)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).map_err(broken)?));
    config.transport_config(transport_config()?).max_incoming(4 * MAX_HANDSHAKES).incoming_buffer_size(64 << 10);
    Ok(config)
}

fn client_config(mut tls: ClientConfig) -> Result<quinn::ClientConfig, NetError> {
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(broken)?));
    config.transport_config(transport_config()?);
    Ok(config)
}

fn member_config(identity: &Identity) -> Result<quinn::ClientConfig, NetError> {
    let tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(broken)?
        .with_root_certificates(roots(&identity.authority)?)
        .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(broken)?;
    client_config(tls)
}

/// Takes connections as they come, at a bounded cost.
async fn accept_all(endpoint: Endpoint, connections: mpsc::Sender<Arc<dyn Connection>>) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    while let Some(incoming) = endpoint.accept().await {
        let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() else {
            incoming.refuse();
            continue;
        };
        let under_way = MAX_HANDSHAKES - handshakes.available_permits();
        if under_way > RETRY_FROM && !incoming.remote_address_validated() {
            // Nothing is kept of it meanwhile.
            let _ = incoming.retry();
            continue;
        }
        let Ok(connecting) = incoming.accept() else { continue };
        let (connections, strangers) = (connections.clone(), Arc::clone(&strangers));
        tokio::spawn(async move {
            let Ok(Ok(connection)) = tokio::time::timeout(HANDSHAKE, connecting).await else {
                // Something is kept of it for a while: until then its place is taken.
                tokio::time::sleep(DRAIN).await;
                return;
            };
            drop(permit);
            let connection = QuicConnection::of(connection);
            if connection.peer.is_none() {
                match strangers.try_acquire_owned() {
                    Ok(place) => watch_stranger(&connection.inner, place),
                    Err(_) => return connection.close("too many processes want to join"),
                }
            }
            let _ = connections.send(Arc::new(connection)).await;
        });
    }
}

/// A stranger leaves in time.
fn watch_stranger(connection: &quinn::Connection, place: OwnedSemaphorePermit) {
    let connection = connection.clone();
    tokio::spawn(async move {
        let _ = tokio::time::timeout(STRANGER, connection.closed()).await;
        connection.close(VarInt::from_u32(0), b"it took too long to join");
        drop(place);
    });
}

/// The addresses of `host:port`.
async fn resolve(address: &str) -> Result<Vec<SocketAddr>, NetError> {
    let unreachable = |reason: String| NetError::Unreachable { address: address.to_owned(), reason };
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let name = address.to_owned();
    let found = tokio::task::spawn_blocking(move || name.to_socket_addrs().map(Vec::from_iter)).await;
    let found = found.map_err(|error| unreachable(error.to_string()))?;
    found.map_err(|error| unreachable(error.to_string()))
}

async fn connect(
    endpoint: &Endpoint,
    config: &quinn::ClientConfig,
    address: &str,
    name: &str,
) -> Result<quinn::Connection, NetError> {
    let mut last = NetError::Unreachable { address: address.to_owned(), reason: "it has no address".to_owned() };
    for socket in resolve(address).await? {
        let unreachable = |reason: String| NetError::Unreachable { address: address.to_owned(), reason };
        let connecting = endpoint.connect_with(config.clone(), socket, name);
        let connecting = connecting.map_err(|error| unreachable(error.to_string()))?;
        last = match tokio::time::timeout(HANDSHAKE, connecting).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(ConnectionError::TimedOut)) | Err(_) => unreachable("nobody answers there".to_owned()),
            Ok(Err(error)) => NetError::Refused { address: address.to_owned(), reason: reason(&error) },
        };
    }
    Err(last)
}

impl Transport for Quic {
    fn connect<'a>(&'a self, peer: &'a Peer, address: &'a str) -> Pending<'a, Result<Arc<dyn Connection>, NetError>> {
        Box::pin(async move {
            let config = member_config(&self.identity)?;
            let inner = connect(&self.endpoint, &config, address, &dns_name(peer)).await?;
            Ok(Arc::new(QuicConnection::of(inner)) as Arc<dyn Connection>)
        })
    }

    fn accept(&self) -> Pending<'_, Option<Arc<dyn Connection>>> {
        Box::pin(async move { self.incoming.lock().await.recv().await })
    }

    fn address(&self) -> String {
        self.endpoint.local_addr().map_or_else(|_| "unknown".to_owned(), |address| address.to_string())
    }
}

/// Connects to a coordinator as a stranger who has a join token. The other side is who it should be if its
/// authority has the fingerprint of the token.
///
/// # Errors
/// It is somebody else, or nobody.
pub async fn knock(address: &str, token: &Token) -> Result<Arc<dyn Connection>, NetError> {
    let verifier = ByFingerprint {
        fingerprint: token.authority.clone(),
        algorithms: provider().signature_verification_algorithms,
    };
    let tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(broken)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let socket = bind(SocketAddr::from(([0, 0, 0, 0], 0))).map_err(broken)?;
    let endpoint = endpoint(socket, None)?;
    let inner = connect(&endpoint, &client_config(tls)?, address, &dns_name(&Peer::coordinator())).await?;
    Ok(Arc::new(QuicConnection::of(inner)))
}

/// Accepts the certificates of one authority, which the other side sends along.
#[derive(Debug)]
struct ByFingerprint {
    fingerprint: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let authority = intermediates.iter().find(|other| fingerprint(other) == self.fingerprint).ok_or(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[derive(Debug)]
struct QuicConnection {
    inner: quinn::Connection,
    peer: Option<Peer>,
}

impl QuicConnection {
    fn of(inner: quinn::Connection) -> Self {
        let certificates = inner.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
        let peer = certificates.and_then(|chain| peer_of(chain.first()?));
        if peer.is_some() {
            inner.set_receive_window(VarInt::MAX);
            inner.set_max_concurrent_bi_streams(MAX_STREAMS.into());
        }
        Self { inner, peer }
    }
}

/// Why a connection is gone, in words.
fn reason(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(close) if !close.reason.is_empty() => {
            String::from_utf8_lossy(&close.reason).into_owned()
        }
        ConnectionError::ConnectionClosed(close) if !close.reason.is_empty() => {
            String::from_utf8_lossy(&close.reason).into_owned()
        }
        ConnectionError::TimedOut => format!("nothing came for {} seconds", IDLE.as_secs()),
        other => other.to_string(),
    }
}

fn lost(error: &ConnectionError) -> NetError {
    NetError::Lost(reason(error))
}

fn stream((send, receive): (quinn::SendStream, quinn::RecvStream)) -> Stream {
    Stream { send: Box::new(QuicSend(send)), receive: Box::new(QuicReceive(receive)) }
}

impl Connection for QuicConnection {
    fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    fn remote(&self) -> String {
        self.inner.remote_address().to_string()
    }

    fn open(&self) -> Pending<'_, Result<Stream, NetError>> {
        Box::pin(async move { self.inner.open_bi().await.map(stream).map_err(|error| lost(&error)) })
    }

    fn accept(&self) -> Pending<'_, Result<Stream, NetError>> {
        Box::pin(async move { self.inner.accept_bi().await.map(stream).map_err(|error| lost(&error)) })
    }

    fn close(&self, reason: &str) {
        self.inner.close(VarInt::from_u32(1), reason.as_bytes());
    }

    fn closed(&self) -> Pending<'_, NetError> {
        Box::pin(async move { lost(&self.inner.closed().await) })
    }
}

struct QuicSend(quinn::SendStream);

impl SendHalf for QuicSend {
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, Result<(), NetError>> {
        Box::pin(async move {
            self.0.write_all_chunks(chunks).await.map_err(|error| match error {
                quinn::WriteError::Stopped(_) => NetError::Stopped,
                quinn::WriteError::ConnectionLost(error) => lost(&error),
                other => NetError::Lost(other.to_string()),
            })
        })
    }

    fn finish(&mut self) {
        // A stream that is gone is finished.
        let _ = self.0.finish();
    }

    fn stopped(&self) -> Pending<'static, ()> {
        let stopped = self.0.stopped();
        Box::pin(async move { drop(stopped.await) })
    }
}

struct QuicReceive(quinn::RecvStream);

impl ReceiveHalf for QuicReceive {
    fn receive(&mut self, most: usize) -> Pending<'_, Result<Option<Bytes>, NetError>> {
        Box::pin(async move {
            match self.0.read_chunk(most, true).await {
                Ok(chunk) => Ok(chunk.map(|chunk| chunk.bytes)),
                Err(quinn::ReadError::Reset(_)) => Err(NetError::Stopped),
                Err(quinn::ReadError::ConnectionLost(error)) => Err(lost(&error)),
                Err(other) => Err(NetError::Lost(other.to_string())),
            }
        })
    }
}
