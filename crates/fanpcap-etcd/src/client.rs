//! A call to etcd: some endpoint answers it, or the deadline ends it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{CallError, SetupError};
use crate::gateway::Gateway;
use crate::settings::{Credentials, Endpoint, Limits, Settings};

/// A pause after all endpoints have failed.
const PAUSE: Duration = Duration::from_millis(100);

/// An etcd with all its endpoints.
#[derive(Debug)]
pub struct Client {
    pub(crate) gateway: Gateway,
    endpoints: Vec<Endpoint>,
    credentials: Option<Credentials>,
    limits: Limits,
    /// Which endpoint answered last: the next call begins there.
    preferred: AtomicUsize,
    token: Mutex<Token>,
}

/// What etcd gave for user and password.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    /// Not asked for so far.
    Unknown,
    /// etcd has authentication turned off, or the client has no password.
    Needless,
    Given(String),
}

#[derive(Deserialize)]
struct Authenticated {
    token: String,
}

impl Client {
    /// Makes a client. It asks nothing of etcd yet.
    ///
    /// # Errors
    ///
    /// The settings are no good, or a certificate's file can't be read.
    pub fn new(settings: &Settings) -> Result<Self, SetupError> {
        settings.check()?;
        Ok(Self {
            gateway: Gateway::new(settings)?,
            endpoints: settings.endpoints.clone(),
            credentials: settings.credentials.clone(),
            limits: settings.limits,
            preferred: AtomicUsize::new(0),
            token: Mutex::new(Token::Unknown),
        })
    }

    /// The limits that it was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Calls `path`, and reads the answer as a `T`.
    pub(crate) fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, CallError> {
        let deadline = Instant::now() + self.limits.call;
        let body = body.to_string();
        self.by_some_endpoint(deadline, |endpoint, within| {
            let ask = |token: Option<&str>| self.gateway.call(endpoint, path, &body, token, within);
            let answer = self.with_token(deadline, ask)?;
            serde_json::from_value(answer).map_err(|error| CallError::Answer {
                endpoint: endpoint.to_string(),
                reason: format!("{path}: {error}"),
            })
        })
    }

    /// Asks one endpoint after the other, until one answers or the deadline has come. An attempt
    /// that the deadline cuts off says less than the one before it, which is the error then.
    pub(crate) fn by_some_endpoint<T>(
        &self,
        deadline: Instant,
        mut ask: impl FnMut(&Endpoint, Duration) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let count = self.endpoints.len();
        let mut at = self.preferred.load(Ordering::Relaxed) % count;
        let mut asked = 0;
        let mut before = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match ask(&self.endpoints[at], left.min(self.limits.attempt)) {
                Err(error) if error.is_elsewhere() => error,
                answer => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return answer;
                }
            };
            if Instant::now() >= deadline {
                return Err(before.unwrap_or(error));
            }
            at = (at + 1) % count;
            asked += 1;
            if asked % count == 0 {
                let left = deadline.saturating_duration_since(Instant::now());
                if left <= PAUSE {
                    return Err(error);
                }
                thread::sleep(PAUSE);
            }
            before = Some(error);
        }
    }

    /// Calls `ask` with a token, and once more with a new one if etcd wants that.
    pub(crate) fn with_token<T>(
        &self,
        deadline: Instant,
        ask: impl Fn(Option<&str>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let used = self.token(&Token::Unknown, deadline)?;
        match ask(used.as_str()) {
            Err(error) if error.wants_token() && self.credentials.is_some() => {
                let renewed = self.token(&used, deadline)?;
                ask(renewed.as_str())
            }
            answer => answer,
        }
    }

    /// The token; a new one if the present one is `refused`.
    fn token(&self, refused: &Token, deadline: Instant) -> Result<Token, CallError> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if *token == *refused || *token == Token::Unknown {
            *token = match &self.credentials {
                Some(credentials) => self.authenticate(credentials, deadline)?,
                None => Token::Needless,
            };
        }
        Ok(token.clone())
    }

    fn authenticate(&self, user: &Credentials, deadline: Instant) -> Result<Token, CallError> {
        let body = json!({"name": user.user, "password": user.password}).to_string();
        let path = "/v3/auth/authenticate";
        let answer = self.by_some_endpoint(deadline, |endpoint, within| {
            let answer = self.gateway.call(endpoint, path, &body, None, within)?;
            serde_json::from_value(answer).map_err(|error| CallError::Answer {
                endpoint: endpoint.to_string(),
                reason: format!("{path}: {error}"),
            })
        });
        match answer {
            Ok(Authenticated { token }) => Ok(Token::Given(token)),
            Err(error) if error.is_auth_off() => Ok(Token::Needless),
            Err(error) => Err(error),
        }
    }
}

impl Token {
    fn as_str(&self) -> Option<&str> {
        match self {
            Self::Given(token) => Some(token),
            Self::Unknown | Self::Needless => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_the_deadline_cuts_off_hides_no_error() {
        let settings = Settings {
            endpoints: vec!["http://127.0.0.1:1".parse().unwrap()],
            ..Settings::default()
        };
        let client = Client::new(&settings).unwrap();
        let endpoint = String::from("a");
        let reason = String::from("of the authority");
        let told = CallError::Certificate { endpoint, reason };
        let mut attempts = 0;
        let deadline = Instant::now() + 2 * PAUSE;
        let answer = client.by_some_endpoint(deadline, |endpoint, within| {
            attempts += 1;
            if attempts == 1 {
                return Err::<(), _>(told.clone());
            }
            thread::sleep(within);
            Err(CallError::Unreachable {
                endpoint: endpoint.to_string(),
                reason: String::from("too late"),
            })
        });
        assert_eq!((answer, attempts), (Err(told), 2));
    }
}
