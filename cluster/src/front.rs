//! How clients use a coordinator over the network: a stream per statement.

pub mod client;
pub mod protocol;
pub(crate) mod server;
