//! The JSON of etcd's gateway: bytes in base64, 64-bit numbers as strings, zeros left out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(D::Error::custom)
}

/// Decodes a 64-bit number. Like the gateway, also accepts plain numbers.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Plain(i64),
    }
    match Form::deserialize(deserializer)? {
        Form::Text(text) => text.parse().map_err(D::Error::custom),
        Form::Plain(number) => Ok(number),
    }
}

/// Decodes the store's revision from an answer's header. All answers about keys have a revision.
pub(crate) fn revision<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    struct Header {
        #[serde(deserialize_with = "number")]
        revision: i64,
    }
    Header::deserialize(deserializer).map(|header| header.revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Pair(
        #[serde(deserialize_with = "number")] i64,
        #[serde(deserialize_with = "bytes")] Vec<u8>,
    );

    #[test]
    fn numbers_are_strings_and_bytes_are_base64() {
        assert_eq!(encode(b"a\xff"), "Yf8=");
        let read = |text: &str| serde_json::from_str::<Pair>(text);
        assert_eq!(
            read(r#"["-7","Yf8="]"#).unwrap(),
            Pair(-7, b"a\xff".to_vec())
        );
        assert_eq!(read(r#"[5,""]"#).unwrap(), Pair(5, Vec::new()));
        for number in ["\"x\"", "1.5", "\"99999999999999999999\"", "null"] {
            assert!(read(&format!("[{number},\"\"]")).is_err(), "{number}");
        }
        assert!(read(r#"["5","?"]"#).is_err());
    }
}
