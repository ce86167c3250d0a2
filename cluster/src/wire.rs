//! Control messages as bytes. This is the only module that knows the encoding (bincode 2): every
//! length is bounded before it is allocated, and trailing bytes are an error.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message, in bytes.
pub const MAX_MESSAGE: usize = 64 << 20;

/// A message that cannot be encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It cannot be written.
    #[error("a message cannot be encoded")]
    Encode(#[source] bincode::error::EncodeError),
    /// It cannot be read, or is too long.
    #[error("a message cannot be decoded")]
    Decode(#[source] bincode::error::DecodeError),
    /// Something follows it.
    #[error("{0} bytes follow a message")]
    Trailing(usize),
}

/// The bytes of a message.
///
/// # Errors
/// The message cannot be encoded.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    let config = bincode::config::standard().with_limit::<MAX_MESSAGE>();
    bincode::serde::encode_to_vec(message, config).map_err(WireError::Encode)
}

/// The message in `bytes`.
///
/// # Errors
/// Bytes that are no message, too many of them, or more than one message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let config = bincode::config::standard().with_limit::<MAX_MESSAGE>();
    let (message, used) = bincode::serde::decode_from_slice(bytes, config).map_err(WireError::Decode)?;
    if used == bytes.len() { Ok(message) } else { Err(WireError::Trailing(bytes.len() - used)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_trailing_bytes() {
        let mut bytes = encode(&("a".to_owned(), vec![1_u32, 2])).unwrap();
        assert_eq!(decode::<(String, Vec<u32>)>(&bytes).unwrap(), ("a".to_owned(), vec![1, 2]));
        bytes.push(0);
        assert!(matches!(decode::<(String, Vec<u32>)>(&bytes), Err(WireError::Trailing(1))));
    }

    #[test]
    fn a_huge_declared_length_is_refused() {
        // 253 announces a 64-bit length.
        let bytes = [253, 255, 255, 255, 255, 255, 255, 255, 127];
        assert!(matches!(decode::<Vec<u64>>(&bytes), Err(WireError::Decode(_))));
        assert!(matches!(decode::<String>(&bytes), Err(WireError::Decode(_))));
    }
}
