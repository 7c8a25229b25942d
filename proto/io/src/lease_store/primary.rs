//! Which server is the primary: named by its address, or told by Redis Sentinel.

use crate::config;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{IntoConnectionInfo as _, RedisConnectionInfo, RedisError, TlsMode};
use std::time::Duration;

/// How long the sentinels may take to name the primary, the primary's own word that it is one included.
const NAMING: Duration = Duration::from_secs(3);

/// Where the primary is to be found.
pub(super) enum Primary {
    /// At this address.
    Fixed(redis::Client),
    /// Wherever the sentinels say.
    Told(Told),
}

/// Sentinels, and what they watch.
pub(super) struct Told {
    sentinels: tokio::sync::Mutex<Sentinel>,
    name: String,
    node: SentinelNodeConnectionInfo,
}

impl Primary {
    /// From the settings.
    ///
    /// # Errors
    /// A sentence on what is wrong with them.
    pub(super) fn of(config: &config::Redis) -> Result<Primary, String> {
        let password = match &config.password_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path);
                let text = text
                    .map_err(|error| format!("redis.password_file {}: {error}", path.display()))?;
                Some(text.trim_end().to_owned())
            }
        };
        let with_password = |settings: RedisConnectionInfo| match &password {
            Some(password) => settings.set_password(password),
            None => settings,
        };
        let nodelay = TcpSettings::default().set_nodelay(true);
        let Some(named) = Named::read(&config.url)? else {
            let info = config.url.as_str().into_connection_info().map_err(|e| e.to_string())?;
            let settings = with_password(info.redis_settings().clone());
            let info = info.set_tcp_settings(nodelay).set_redis_settings(settings);
            return redis::Client::open(info)
                .map(Primary::Fixed)
                .map_err(|error| error.to_string());
        };
        let mut settings = RedisConnectionInfo::default().set_db(named.db);
        if let Some(user) = &named.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &named.password {
            settings = settings.set_password(password);
        }
        let mut node = SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(with_password(settings))
            .set_tcp_settings(nodelay);
        if named.is_tls {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        let sentinels = Sentinel::build(named.sentinels()).map_err(|error| error.to_string())?;
        let sentinels = tokio::sync::Mutex::new(sentinels);
        Ok(Primary::Told(Told { sentinels, name: named.primary, node }))
    }

    /// A client of the primary as it is now.
    pub(super) async fn client(&self) -> Result<redis::Client, RedisError> {
        match self {
            Primary::Fixed(client) => Ok(client.clone()),
            Primary::Told(told) => {
                let mut sentinels = told.sentinels.lock().await;
                let naming = sentinels.async_master_for(&told.name, Some(&told.node));
                let named = tokio::time::timeout(NAMING, naming).await;
                named.unwrap_or_else(|_| {
                    let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
                    Err(RedisError::from(late))
                })
            }
        }
    }

    /// Whether it may become another one.
    pub(super) fn may_move(&self) -> bool {
        matches!(self, Primary::Told(_))
    }
}

/// What a `redis+sentinel://` URL names.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    is_tls: bool,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<String>,
    primary: String,
    db: i64,
}

impl Named {
    /// Reads `redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/NAME[/DB]`; `rediss+sentinel` for
    /// TLS. `None`: it is a URL of another kind.
    fn read(url: &str) -> Result<Option<Named>, String> {
        let (is_tls, rest) = match url.split_once("+sentinel://") {
            Some(("redis", rest)) => (false, rest),
            Some(("rediss", rest)) => (true, rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "{scheme}+sentinel is no scheme; use redis+sentinel or rediss+sentinel"
                ));
            }
            None => return Ok(None),
        };
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None | Some(None) => (login, None),
            Some(Some((user, password))) => {
                (Some(user).filter(|user| !user.is_empty()), Some(password))
            }
        };
        let missing = "name the sentinels and the primary, as in redis+sentinel://host1:26379,host2:26379/mymaster";
        let (hosts, path) = rest.split_once('/').ok_or(missing)?;
        let (primary, db) = path.split_once('/').unwrap_or((path, "0"));
        let hosts: Vec<String> = hosts
            .split(',')
            .map(str::trim)
            .filter(|host| !host.is_empty())
            .map(str::to_owned)
            .collect();
        if hosts.is_empty() || primary.is_empty() {
            return Err(missing.to_owned());
        }
        let db = db.parse().map_err(|_| format!("{db:?} is no number of a database"))?;
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (user, password, primary) = (owned(user), owned(password), primary.to_owned());
        Ok(Some(Named { is_tls, user, password, hosts, primary, db }))
    }

    fn sentinels(&self) -> Vec<String> {
        let scheme = if self.is_tls { "rediss" } else { "redis" };
        self.hosts.iter().map(|host| format!("{scheme}://{host}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_sentinels_primary_and_login() {
        let named = Named::read("rediss+sentinel://me:s%3A@a:1, b:2/main/3").unwrap().unwrap();
        assert_eq!(named.sentinels(), ["rediss://a:1", "rediss://b:2"]);
        assert_eq!((named.primary.as_str(), named.db), ("main", 3));
        assert_eq!((named.user.as_deref(), named.password.as_deref()), (Some("me"), Some("s%3A")));
        let plain = Named::read("redis+sentinel://a/m").unwrap().unwrap();
        assert_eq!((plain.user, plain.password, plain.db, plain.is_tls), (None, None, 0, false));
        assert_eq!(Named::read("redis://a:1/0"), Ok(None));
        for bad in [
            "redis+sentinel://a:1",
            "redis+sentinel:///m",
            "http+sentinel://a/m",
            "redis+sentinel://a/m/x",
        ] {
            assert!(Named::read(bad).is_err(), "{bad}");
        }
    }
}
