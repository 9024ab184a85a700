//! Calls etcd. A call ends when an endpoint answers, or at its deadline.

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

/// The pause after all endpoints have failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A client of an etcd cluster, with all endpoints.
#[derive(Debug)]
pub struct Client {
    pub(crate) gateway: Gateway,
    endpoints: Vec<Endpoint>,
    credentials: Option<Credentials>,
    limits: Limits,
    /// The endpoint that answered last. The next call begins with this endpoint.
    preferred: AtomicUsize,
    token: Mutex<Token>,
}

/// The token for the user and the password.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    /// Not requested yet.
    Unknown,
    /// No token is needed: etcd has authentication turned off, or the client has no password.
    Needless,
    Given(String),
}

#[derive(Deserialize)]
struct Authenticated {
    token: String,
}

impl Client {
    /// Makes a client. It connects at the first call.
    ///
    /// # Errors
    /// Fails if the settings are not valid, or a certificate's file can't be read.
    pub fn new(settings: &Settings) -> Result<Self, SetupError> {
        let has_tls = settings.tls.is_some();
        let mut endpoints = settings.endpoints.iter();
        if endpoints.len() == 0 || endpoints.any(|it| it.is_tls != has_tls) {
            return Err(SetupError::Endpoints);
        }
        Ok(Self {
            gateway: Gateway::new(settings)?,
            endpoints: settings.endpoints.clone(),
            credentials: settings.credentials.clone(),
            limits: settings.limits,
            preferred: AtomicUsize::new(0),
            token: Mutex::new(Token::Unknown),
        })
    }

    /// The limits of the client.
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
            self.with_token(deadline, |token| {
                self.gateway.call(endpoint, path, &body, token, within)
            })
        })
    }

    /// Asks one endpoint after the other, until one answers or the deadline has come. If the
    /// deadline ends an attempt early, returns the error of the previous attempt at the same
    /// endpoint, because that error is more specific.
    pub(crate) fn by_some_endpoint<T>(
        &self,
        deadline: Instant,
        mut ask: impl FnMut(&Endpoint, Duration) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let count = self.endpoints.len();
        let mut at = self.preferred.load(Ordering::Relaxed) % count;
        let mut asked = 0;
        let mut before = vec![None; count];
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
                return Err(before[at].take().unwrap_or(error));
            }
            before[at] = Some(error.clone());
            at = (at + 1) % count;
            asked += 1;
            if asked % count == 0 {
                let left = deadline.saturating_duration_since(Instant::now());
                if left <= PAUSE {
                    return Err(error);
                }
                thread::sleep(PAUSE);
            }
        }
    }

    /// Calls `ask` with a token. If etcd refuses the token, calls `ask` once more with a new one.
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

    /// Returns the present token. If the present token is `refused`, gets a new token first.
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
            self.gateway.call(endpoint, path, &body, None, within)
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
    use crate::error::Failure;
    use crate::settings::TlsFiles;

    fn client(endpoints: &[&str]) -> Client {
        let settings = Settings {
            endpoints: endpoints.iter().map(|it| it.parse().unwrap()).collect(),
            ..Settings::default()
        };
        Client::new(&settings).unwrap()
    }

    fn told() -> CallError {
        CallError::new(Failure::Certificate, "a", "of the authority")
    }

    fn cut_off(within: Duration) -> CallError {
        thread::sleep(within);
        CallError::new(Failure::Unreachable, "b", "too late")
    }

    #[test]
    fn certificates_and_plain_endpoints_exclude_each_other() {
        let mut settings = Settings {
            endpoints: vec!["https://a:1".parse().unwrap()],
            ..Settings::default()
        };
        let refused = |settings: &Settings| Client::new(settings).unwrap_err().to_string();
        let endpoints = SetupError::Endpoints.to_string();
        assert_eq!(refused(&settings), endpoints);
        settings.tls = Some(TlsFiles {
            ca: "/nowhere/ca.pem".into(),
            own: None,
        });
        assert!(refused(&settings).contains("/nowhere/ca.pem"));
        settings.endpoints.push("http://b:1".parse().unwrap());
        assert_eq!(refused(&settings), endpoints);
        settings.endpoints.clear();
        assert_eq!(refused(&settings), endpoints);
    }

    #[test]
    fn an_attempt_that_the_deadline_cuts_off_hides_no_error() {
        let client = client(&["http://127.0.0.1:1"]);
        let mut attempts = 0;
        let deadline = Instant::now() + 2 * PAUSE;
        let answer = client.by_some_endpoint(deadline, |_, within| {
            attempts += 1;
            Err::<(), _>(if attempts == 1 {
                told()
            } else {
                cut_off(within)
            })
        });
        assert_eq!((answer, attempts), (Err(told()), 2));
    }

    /// If one endpoint has a wrong certificate and the other endpoint is out of reach, the client
    /// returns the second error, because the other endpoint may become reachable.
    #[test]
    fn an_endpoint_that_is_out_of_reach_is_told_as_such() {
        let client = client(&["http://127.0.0.1:1", "http://127.0.0.1:2"]);
        let deadline = Instant::now() + PAUSE;
        let answer = client.by_some_endpoint(deadline, |endpoint, within| {
            let is_first = endpoint.authority.ends_with(":1");
            Err::<(), _>(if is_first { told() } else { cut_off(within) })
        });
        assert_eq!(answer.unwrap_err().failure, Failure::Unreachable);
    }
}
