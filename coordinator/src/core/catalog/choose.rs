//! Which pool's version of a tool is offered, where several announce one name (CONTRACT 1.4, 1.12).

use std::cmp::Reverse;

/// What one pool would offer under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The pool.
    pub pool: &'a str,
    /// Hash of its version on offer.
    pub hash: &'a str,
    /// Whether a live worker of the pool has it.
    pub is_live: bool,
    /// When the pool first announced the name.
    pub since_ms: i64,
    /// When a worker of the pool last announced this version.
    pub last_announced_ms: i64,
}

/// The candidate that is offered: of those with the version of the pool that had the name first, the one
/// that announced it last, a live one before one without workers. The rest of them stand by; candidates
/// with another version are newcomers, which are not offered.
pub fn choose<'c, 'a>(candidates: &'c [Candidate<'a>]) -> Option<&'c Candidate<'a>> {
    let first = candidates.iter().min_by_key(|one| (one.since_ms, one.pool))?;
    candidates
        .iter()
        .filter(|one| one.hash == first.hash)
        .max_by_key(|one| (one.is_live, one.last_announced_ms, Reverse(one.pool)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(
        pool: &'static str,
        hash: &'static str,
        since: i64,
        last: i64,
    ) -> Candidate<'static> {
        Candidate { pool, hash, is_live: true, since_ms: since, last_announced_ms: last }
    }

    fn chosen(candidates: &[Candidate<'_>]) -> String {
        choose(candidates).unwrap().pool.to_owned()
    }

    #[test]
    fn one_version_moves_to_the_pool_that_announced_last_and_back() {
        let (blue, green) = (candidate("blue", "h", 1, 1), candidate("green", "h", 2, 2));
        assert_eq!(chosen(&[blue.clone(), green.clone()]), "green");
        let back = Candidate { last_announced_ms: 3, ..blue };
        assert_eq!(chosen(&[back.clone(), green.clone()]), "blue");
        let gone = Candidate { is_live: false, ..back };
        assert_eq!(chosen(&[gone, green]), "green", "a pool with workers before one without");
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn another_version_of_a_newcomer_is_never_offered() {
        let (first, other) = (candidate("a", "h", 1, 1), candidate("b", "other", 2, 9));
        assert_eq!(chosen(&[other.clone(), first.clone()]), "a");
        // A rollout of the pool that was first makes it no newcomer.
        let rolled = Candidate { hash: "newer", last_announced_ms: 20, ..first.clone() };
        assert_eq!(chosen(&[rolled, other.clone()]), "a");
        // Nor does it lose the name while it is scaled to zero.
        let asleep = Candidate { is_live: false, ..first };
        assert_eq!(chosen(&[asleep, other]), "a");
    }
}
