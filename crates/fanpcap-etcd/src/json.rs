//! The gateway's JSON: bytes in base64, 64-bit numbers as strings, zeros left out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

/// Bytes: base64 in JSON.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}

/// A 64-bit number: a string in JSON. The gateway takes plain numbers too, and so does this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Number(pub(crate) i64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Plain(i64),
        }
        match Form::deserialize(deserializer)? {
            Form::Text(text) => text.parse().map(Self).map_err(D::Error::custom),
            Form::Plain(number) => Ok(Self(number)),
        }
    }
}

/// What every answer about keys begins with. One without a revision is not etcd's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub(crate) struct Header {
    /// The store's revision when it answered.
    pub(crate) revision: Number,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strings_and_bytes_are_base64() {
        let text = serde_json::to_string(&(Number(-7), Bytes(b"a\xff".to_vec()))).unwrap();
        assert_eq!(text, r#"["-7","Yf8="]"#);
        let back: (Number, Bytes) = serde_json::from_str(&text).unwrap();
        assert_eq!(back, (Number(-7), Bytes(b"a\xff".to_vec())));
        assert_eq!(serde_json::from_str::<Number>("5").unwrap(), Number(5));
        for text in ["\"x\"", "1.5", "\"99999999999999999999\"", "null"] {
            assert!(serde_json::from_str::<Number>(text).is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Bytes>("\"?\"").is_err());
    }
}
