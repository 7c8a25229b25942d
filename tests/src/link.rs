//! A network that can be broken: a TCP proxy between one process and one server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

const CHUNK_BYTES: usize = 64 * 1024;
/// What a link that stalls keeps of one way; then its sender waits.
const CHUNKS_MAX: usize = 4_096;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the process to the server.
    Up,
    /// From the server to the process.
    Down,
}

/// What a [`Link`] does when it meets what it waits for, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The whole NATS message that holds it is lost; what comes before and after goes on.
    LoseMessage,
    /// What holds it is lost, and with it the connection.
    LoseConnection,
    /// It, and all behind it, comes so much later.
    Hold(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fair,
    /// Connections are reset, new ones too.
    Cut,
    /// Bytes are taken and kept; new connections are taken and kept waiting.
    Stalled,
    /// The same for what the server says only.
    DownStalled,
}

impl Weather {
    fn stalls(self, way: Way) -> bool {
        self == Weather::Stalled || (self == Weather::DownStalled && way == Way::Down)
    }
}

struct Set {
    way: Way,
    pattern: Vec<u8>,
    trap: Trap,
}

struct State {
    weather: watch::Sender<Weather>,
    delay: Mutex<Duration>,
    trap: Mutex<Option<Set>>,
    connections: AtomicUsize,
    /// Connections up to this number are never heard of again.
    forgotten: watch::Sender<usize>,
    server: SocketAddr,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link that passes everything until it is told otherwise. Gone when dropped.
pub struct Link {
    state: Arc<State>,
    port: u16,
    listener: tokio::task::JoinHandle<()>,
}

impl Link {
    /// A link to a server on this machine.
    pub async fn to(port: u16) -> anyhow::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let own = listener.local_addr()?.port();
        let state = Arc::new(State {
            weather: watch::Sender::new(Weather::Fair),
            delay: Mutex::default(),
            trap: Mutex::default(),
            connections: AtomicUsize::new(0),
            forgotten: watch::Sender::new(0),
            server: SocketAddr::from(([127, 0, 0, 1], port)),
        });
        let shared = Arc::clone(&state);
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::spawn(serve(client, number, Arc::clone(&shared)));
            }
        });
        Ok(Link { state, port: own, listener })
    }

    /// Its own end, as `scheme://127.0.0.1:PORT`.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// How many connections were ever made to it.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Everything passes again; what was kept back arrives, as packets that are sent again do.
    pub fn heal(&self) {
        self.state.weather.send_replace(Weather::Fair);
    }

    /// Resets every connection, and each new one, until it is healed.
    pub fn cut(&self) {
        self.state.weather.send_replace(Weather::Cut);
    }

    /// Takes bytes and passes none on, without a word, until it is healed.
    pub fn stall(&self) {
        self.state.weather.send_replace(Weather::Stalled);
    }

    /// The same for what the server says; what it hears passes.
    pub fn stall_down(&self) {
        self.state.weather.send_replace(Weather::DownStalled);
    }

    /// Passes nothing more of the connections that are open, for good and without a word; new ones are
    /// as good as ever.
    pub fn forget(&self) {
        self.state.forgotten.send_replace(self.connections());
    }

    /// Everything from now on comes so much later, each way.
    pub fn delay(&self, by: Duration) {
        *lock(&self.state.delay) = by;
    }

    /// Waits for bytes that hold `pattern`, and springs once.
    pub fn set(&self, way: Way, pattern: &str, trap: Trap) {
        let set = Set { way, pattern: pattern.as_bytes().to_vec(), trap };
        *lock(&self.state.trap) = Some(set);
    }

    /// Whether the last trap has sprung.
    pub fn is_sprung(&self) -> bool {
        lock(&self.state.trap).is_none()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listener.abort();
        self.state.weather.send_replace(Weather::Cut);
    }
}

/// One connection, to its end.
async fn serve(mut client: TcpStream, number: usize, state: Arc<State>) {
    // Whatever ends it, the process sees a reset.
    let _ = client.set_zero_linger();
    let _ = client.set_nodelay(true);
    let mut weather = state.weather.subscribe();
    if *weather.borrow_and_update() == Weather::Cut {
        return;
    }
    let Ok(mut server) = TcpStream::connect(state.server).await else { return };
    let _ = server.set_zero_linger();
    let _ = server.set_nodelay(true);
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let both = async {
        tokio::select! {
            () = pass(client_read, server_write, Arc::clone(&state), Way::Up) => {}
            () = pass(server_read, client_write, Arc::clone(&state), Way::Down) => {}
        }
    };
    let mut forgotten = state.forgotten.subscribe();
    let forgotten = async {
        let _ = forgotten.wait_for(|forgotten| number <= *forgotten).await;
    };
    let alive = async {
        tokio::select! {
            () = both => {}
            // Held, so that neither side hears of an end.
            () = forgotten => std::future::pending().await,
        }
    };
    tokio::select! {
        () = alive => {}
        _ = weather.wait_for(|weather| *weather == Weather::Cut) => {}
    }
}

/// Passes one way until either side ends.
async fn pass(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, state: Arc<State>, way: Way) {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let reading = async {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(read) = from.read(&mut chunk).await {
            let due = Instant::now() + *lock(&state.delay);
            if read == 0 || queue.send((due, chunk[..read].to_vec())).await.is_err() {
                break;
            }
        }
        drop(queue);
        std::future::pending::<()>().await;
    };
    let writing = async {
        let mut weather = state.weather.subscribe();
        let mut rest = Vec::new();
        while let Some((due, bytes)) = queued.recv().await {
            tokio::time::sleep_until(due).await;
            // An error: the link is gone.
            if weather.wait_for(|weather| !weather.stalls(way)).await.is_err() {
                return;
            }
            let Some(bytes) = spring(&state, way, bytes, &mut rest).await else { return };
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

/// What of these bytes is passed on where a trap is set; `None`: the connection is lost. `rest` keeps
/// the beginning of a message whose end has not come.
async fn spring(state: &State, way: Way, bytes: Vec<u8>, rest: &mut Vec<u8>) -> Option<Vec<u8>> {
    let trap = lock(&state.trap).as_ref().filter(|set| set.way == way).map(|set| set.trap);
    let mut bytes = if rest.is_empty() { bytes } else { [std::mem::take(rest), bytes].concat() };
    let Some(trap) = trap else { return Some(bytes) };
    if trap == Trap::LoseMessage {
        let whole = whole_messages(&bytes);
        *rest = bytes.split_off(whole);
        let Some((from, to)) = take_trap(state, &bytes) else { return Some(bytes) };
        let (mut at, mut lost) = (0, (from, to));
        while at < bytes.len() {
            let end = at + message_length(&bytes[at..]).unwrap_or(bytes.len() - at);
            if (at..end).contains(&from) {
                lost = (at, end);
            }
            at = end;
        }
        bytes.drain(lost.0..lost.1);
        return Some(bytes);
    }
    match (take_trap(state, &bytes), trap) {
        (None, _) => Some(bytes),
        (Some(_), Trap::Hold(time)) => {
            tokio::time::sleep(time).await;
            Some(bytes)
        }
        (Some(_), Trap::LoseConnection | Trap::LoseMessage) => None,
    }
}

/// Where the pattern of the trap stands; the trap is gone then.
fn take_trap(state: &State, bytes: &[u8]) -> Option<(usize, usize)> {
    let mut trap = lock(&state.trap);
    let pattern = &trap.as_ref()?.pattern;
    let at = bytes.windows(pattern.len()).position(|window| window == pattern.as_slice())?;
    let end = at + pattern.len();
    *trap = None;
    Some((at, end))
}

/// How many of these bytes are whole messages of the NATS protocol.
fn whole_messages(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = message_length(&bytes[at..]) {
        at += length;
    }
    at
}

/// Length of the first message of the NATS protocol; `None`: it is not whole.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|window| window == b"\r\n")? + 2;
    let words = String::from_utf8_lossy(&bytes[..line]).into_owned();
    let mut words = words.split_whitespace();
    let has_payload = words
        .next()
        .is_some_and(|word| ["PUB", "HPUB", "MSG", "HMSG"].contains(&word.to_uppercase().as_str()));
    let payload = words.last().filter(|_| has_payload).and_then(|size| size.parse::<usize>().ok());
    let length = line + payload.map_or(0, |size| size + 2);
    (bytes.len() >= length).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it hears, behind a link.
    async fn echo() -> (Link, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        (Link::to(port).await.unwrap(), server)
    }

    async fn connect(link: &Link) -> TcpStream {
        TcpStream::connect(("127.0.0.1", link.port)).await.unwrap()
    }

    async fn hear(stream: &mut TcpStream, bytes: usize) -> Option<String> {
        let mut heard = vec![0; bytes];
        let reading = stream.read_exact(&mut heard);
        match tokio::time::timeout(Duration::from_secs(5), reading).await {
            Ok(read) => read.ok().map(|_| String::from_utf8(heard).unwrap()),
            Err(_) => None,
        }
    }

    async fn is_silent(stream: &mut TcpStream) -> bool {
        let (mut byte, patience) = ([0], Duration::from_millis(300));
        tokio::time::timeout(patience, stream.read(&mut byte)).await.is_err()
    }

    #[tokio::test]
    async fn what_was_stalled_comes_when_it_is_healed_and_a_cut_is_a_reset() {
        let (link, server) = echo().await;
        let mut stream = connect(&link).await;
        stream.write_all(b"one").await.unwrap();
        assert_eq!(hear(&mut stream, 3).await.as_deref(), Some("one"));
        link.stall();
        stream.write_all(b"two").await.unwrap();
        assert!(is_silent(&mut stream).await);
        link.heal();
        assert_eq!(hear(&mut stream, 3).await.as_deref(), Some("two"));
        link.stall_down();
        stream.write_all(b"six").await.unwrap();
        assert!(is_silent(&mut stream).await);
        link.heal();
        assert_eq!(hear(&mut stream, 3).await.as_deref(), Some("six"));
        link.cut();
        let mut byte = [0];
        assert!(stream.read(&mut byte).await.is_err());
        let mut again = connect(&link).await;
        assert!(again.read(&mut byte).await.map_or(true, |read| read == 0));
        assert_eq!(link.connections(), 2);
        server.abort();
    }

    #[tokio::test]
    async fn a_delay_counts_each_way() {
        let (link, server) = echo().await;
        link.delay(Duration::from_millis(60));
        let mut stream = connect(&link).await;
        let since = Instant::now();
        stream.write_all(b"one").await.unwrap();
        assert_eq!(hear(&mut stream, 3).await.as_deref(), Some("one"));
        assert!(since.elapsed() >= Duration::from_millis(120), "{:?}", since.elapsed());
        server.abort();
    }

    #[tokio::test]
    async fn one_message_is_lost_whole_and_no_other() {
        let (link, server) = echo().await;
        let mut stream = connect(&link).await;
        link.set(Way::Up, "+WPI", Trap::LoseMessage);
        let (first, lost) = ("PUB a 2\r\nhi\r\n", "PUB b 4\r\n+WPI\r\n");
        stream.write_all(format!("{first}{}", &lost[..11]).as_bytes()).await.unwrap();
        assert_eq!(hear(&mut stream, first.len()).await.as_deref(), Some(first));
        assert!(!link.is_sprung());
        let rest = format!("{}PING\r\n{lost}", &lost[11..]);
        stream.write_all(rest.as_bytes()).await.unwrap();
        let wanted = format!("PING\r\n{lost}");
        assert_eq!(hear(&mut stream, wanted.len()).await, Some(wanted));
        assert!(link.is_sprung());
        server.abort();
    }

    #[tokio::test]
    async fn an_answer_can_be_late_or_take_the_connection_with_it() {
        let (link, server) = echo().await;
        let mut stream = connect(&link).await;
        link.set(Way::Down, "granted", Trap::Hold(Duration::from_millis(100)));
        let since = Instant::now();
        stream.write_all(b"granted").await.unwrap();
        assert_eq!(hear(&mut stream, 7).await.as_deref(), Some("granted"));
        assert!(since.elapsed() >= Duration::from_millis(100));
        link.set(Way::Down, "granted", Trap::LoseConnection);
        stream.write_all(b"granted").await.unwrap();
        assert!(stream.read(&mut [0; 8]).await.is_err());
        server.abort();
    }
}
