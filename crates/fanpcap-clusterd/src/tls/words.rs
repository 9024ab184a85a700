//! Messages for failures of TLS: why a connection failed, and what to do.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library has some dozens of errors, and more with each version"
)]

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// The message for an error; `None` if the error did not come from TLS.
pub fn words(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let why = match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => OTHER_KEY,
        Error::InvalidCertificate(error) => {
            return Some(match of_certificate(error) {
                Some(why) => format!("its certificate {why}"),
                None => format!("its certificate is not valid: {error}"),
            });
        }
        Error::NoCertificatesPresented => "it has no certificate: set its 'records_certificate'",
        Error::AlertReceived(alert) => {
            return Some(match of_alert(*alert) {
                Some(why) => format!("it refuses this side: {why}"),
                None => format!("it ends the connection: {error}"),
            });
        }
        Error::InvalidMessage(_) => {
            "it does not speak TLS: set the same 'key_file' in cluster.conf on both sides, and \
             update fanpcap where it is older"
        }
        Error::PeerIncompatible(_) => MIXED,
        error => return Some(error.to_string()),
    };
    Some(why.to_owned())
}

const OTHER_KEY: &str = "it has another key: compare 'key_file' in cluster.conf on both sides";

const MIXED: &str = "one side has certificates, the other one has 'key_file' alone: set \
    'records_certificate' in cluster.conf on both sides, or on neither";

/// What is wrong with the other side's certificate.
fn of_certificate(error: &CertificateError) -> Option<&'static str> {
    Some(match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired: renew 'records_certificate' on that machine, and send SIGHUP"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: compare the clocks"
        }
        CertificateError::UnknownIssuer => {
            "is not signed by an authority in 'records_ca': compare that file on both sides"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "belongs to another machine: its subjectAltName must have the IP address in 'analyzers'"
        }
        _ => return None,
    })
}

/// Why the other side refuses this side, according to its TLS alert; `None` for unknown alerts.
fn of_alert(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => {
            "this side's certificate has expired: renew 'records_certificate', and send SIGHUP"
        }
        AlertDescription::UnknownCA => {
            "no authority in its 'records_ca' has signed the certificate: compare that file on \
             both sides"
        }
        AlertDescription::CertificateRequired => {
            "it wants a certificate: set 'records_certificate'"
        }
        AlertDescription::HandshakeFailure => MIXED,
        AlertDescription::AccessDenied => OTHER_KEY,
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::DecryptError => "see its own messages",
        _ => return None,
    })
}
