//! Probes by HTTP, judged as the kubelet judges them.

use std::net::{IpAddr, SocketAddr};

use dapple_plan::marker::action::HttpGet;
use dapple_plan::marker::schedule::Answer;
use http::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::task::AbortOnDropHandle;

use super::net::connect;

/// What probes call themselves, unless a header says otherwise.
const CALLED: &str = concat!("dapple-probe/", env!("CARGO_PKG_VERSION"));
/// So much of an answer is waited for.
const MOST_BYTES: usize = 10 * 1024;
/// So often a probe is sent elsewhere.
const MOST_REDIRECTS: usize = 10;

/// Where on a pod to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    is_tls: bool,
    port: u16,
    /// Path and query.
    path: String,
    /// How the pod is called.
    host: String,
}

/// What a server says.
struct Said {
    status: StatusCode,
    location: Option<String>,
}

/// Asks a pod. It succeeds with a status from 200 to 399, after redirects on the pod itself; one that leads elsewhere is not
/// followed, and is a success.
pub(super) async fn probe(tls: &TlsConnector, address: IpAddr, get: &HttpGet) -> Answer {
    let mut target = Target::of(address, get);
    for _ in 0..=MOST_REDIRECTS {
        let said = match ask(tls, address, &target, get).await {
            Ok(said) => said,
            Err(answer) => return answer,
        };
        let location = said.location.filter(|_| is_redirect(said.status));
        match location.map(|location| target.then(address, &location)) {
            Some(Next::Here(next)) => target = next,
            Some(Next::Nowhere) => return Answer::Failed("it redirects to what is no address".to_owned()),
            Some(Next::Elsewhere) | None => return judge(said.status),
        }
    }
    Answer::Failed(format!("it redirects more than {MOST_REDIRECTS} times"))
}

fn judge(status: StatusCode) -> Answer {
    match status.as_u16() {
        200..400 => Answer::Succeeded,
        other => Answer::Failed(format!("it answers with status {other}")),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

async fn ask(tls: &TlsConnector, address: IpAddr, target: &Target, get: &HttpGet) -> Result<Said, Answer> {
    let request = target.request(get).map_err(|_| Answer::Error("the request cannot be sent as it is".to_owned()))?;
    let stream = connect(address, target.port).await?;
    let said = if target.is_tls {
        let stream = tls.connect(ServerName::from(address), stream).await;
        send(stream.map_err(|_| Answer::Failed("it does not speak TLS as it should".to_owned()))?, request).await
    } else {
        send(stream, request).await
    };
    // What hyper says of an answer that it cannot read has nothing of the answer in it.
    said.map_err(|error| Answer::Failed(format!("no answer by HTTP: {error}")))
}

async fn send<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Said, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _until_dropped = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await?;
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok()).map(str::to_owned);
    let said = Said { status: response.status(), location };
    let (mut body, mut left) = (response.into_body(), MOST_BYTES);
    while let Some(frame) = body.frame().await {
        left = left.saturating_sub(frame?.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            break;
        }
    }
    Ok(said)
}

/// Where a redirect leads.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Here(Target),
    /// To another host.
    Elsewhere,
    Nowhere,
}

impl Target {
    fn of(address: IpAddr, get: &HttpGet) -> Self {
        let given = get.headers.iter().find(|(name, value)| name.eq_ignore_ascii_case("host") && !value.is_empty());
        let host = given.map_or_else(|| SocketAddr::new(address, get.port).to_string(), |(_, host)| host.clone());
        let slash = if get.path.starts_with('/') { "" } else { "/" };
        Self { is_tls: get.is_tls, port: get.port, path: escaped(&format!("{slash}{}", get.path)), host }
    }

    fn request(&self, get: &HttpGet) -> Result<Request<Empty<Bytes>>, http::Error> {
        let is_given = |wanted: &str| get.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let mut request = Request::get(self.path.as_str()).header(HOST, self.host.as_str()).header(CONNECTION, "close");
        for (name, default) in [(USER_AGENT, CALLED), (ACCEPT, "*/*")] {
            if !is_given(name.as_str()) {
                request = request.header(name, default);
            }
        }
        // An empty one of those that have a default says that it is not to be sent.
        let may_be_left_out =
            |name: &str| ["user-agent", "accept"].iter().any(|known| name.eq_ignore_ascii_case(known));
        for (name, value) in &get.headers {
            let is_left_out = value.is_empty() && may_be_left_out(name);
            if !is_left_out && !name.eq_ignore_ascii_case("host") {
                request = request.header(name.as_str(), value.as_str());
            }
        }
        request.body(Empty::new())
    }

    fn then(&self, address: IpAddr, location: &str) -> Next {
        let location = location.split('#').next().unwrap_or_default();
        if let Some(rest) = location.strip_prefix("//") {
            let scheme = if self.is_tls { "https" } else { "http" };
            return self.absolute(address, &format!("{scheme}://{rest}"));
        }
        if location.contains("://") {
            return self.absolute(address, location);
        }
        let own = self.path.split('?').next().unwrap_or_default();
        let path = match location.chars().next() {
            None => self.path.clone(),
            Some('/') => location.to_owned(),
            Some('?') => format!("{own}{location}"),
            Some(_) => format!("{}/{location}", own.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Next::Here(Self { path: escaped(&path), ..self.clone() })
    }

    fn absolute(&self, address: IpAddr, location: &str) -> Next {
        let Ok(uri) = escaped(location).parse::<Uri>() else { return Next::Nowhere };
        let (is_tls, usual) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Next::Nowhere,
        };
        let Some(authority) = uri.authority() else { return Next::Nowhere };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.parse() != Ok(address) {
            return Next::Elsewhere;
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let host = authority.as_str().rsplit('@').next().unwrap_or_default().to_owned();
        Next::Here(Self { is_tls, port: authority.port_u16().unwrap_or(usual), path: path.to_owned(), host })
    }
}

/// With those bytes written as escapes that no request may have as they are.
fn escaped(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte);
    path.bytes().fold(String::with_capacity(path.len()), |mut escaped, byte| {
        if is_plain(byte) {
            escaped.push(byte.into());
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
        escaped
    })
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
