"""Access to the master that survives its restarts, an unreachable database and expired tokens."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import requests
from determined.common import api
from determined.common.api import authentication, bindings, certs, errors
from determined.experimental import Determined

from trainbed_determined.settings import Settings

ANSWER_WITHIN: Final = 60.0  # s; the SDK itself would wait for ever
ASK_AGAIN: Final = 2.0  # s

# The SDK would prefer these to the master's own certificate, or send its requests elsewhere.
MISLEADING: Final = (
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    *(name for proxy in ("http_proxy", "https_proxy", "all_proxy") for name in (proxy, proxy.upper())),
)

# The master answers 500 both for a configuration that can never work and for an unreachable database.
DATABASE_AWAY: Final = re.compile(
    r"failed to connect|dial error|connection refused|connection reset|broken pipe|unexpected EOF"
    r"|the database system is|terminating connection|conn closed|too many clients|bad connection",
    re.IGNORECASE,
)

BRANDING_OF_STANDIN: Final = "stand-in"  # the real master's is "determined"

STOPPING: Final = (408, 499)  # a stopping master's answers to requests that still wait

T = TypeVar("T")


class MasterError(Exception):
    """The master refused or does not answer; the message is one sentence."""


class Refused(MasterError):
    """The master answered, and asking again would not help."""


class Gone(Refused):
    """The requested thing does not exist."""


class Away(MasterError):
    """The master did not answer within the time allowed."""


class _Patient(api.Session):
    """A session whose requests time out, and which leaves retries to the caller."""

    def _make_http_session(self) -> requests.Session:
        return _limited(super()._make_http_session())


class _PatientLogin(api.UnauthSession):
    def _make_http_session(self) -> requests.Session:
        return _limited(super()._make_http_session())


def _limited(session: requests.Session) -> requests.Session:
    send = session.send

    def within(request: requests.PreparedRequest, **options: Any) -> requests.Response:
        options["timeout"] = options.get("timeout") or ANSWER_WITHIN
        return send(request, **options)

    session.send = within
    return session


class Master:
    """One user's access to the master."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        """Nothing is asked yet.

        Args:
            settings: the user and the master's address.
            say: shows a line of progress.
        """
        for name in MISLEADING:
            os.environ.pop(name, None)
        self.settings = settings
        self._say = say
        self._address = api.canonicalize_master_url(settings.master)
        certificate = settings.certificate
        self._certificate = certs.Cert(certificate.read_text(encoding="ascii")) if certificate else None
        self._client: Determined | None = None
        self.absences: list[float] = []  # seconds of each absence

    def ask(
        self,
        what: str,
        do: Callable[[Determined], T],
        patience_s: float | None = None,
        *,
        may_be_hopeless: bool = False,
    ) -> T:
        """Return what `do` returns, retrying while the master or its database is unreachable.

        Args:
            what: names the request in messages.
            do: the request; it may be called more than once.
            patience_s: seconds for which the master may be unreachable; None = as in the settings.
            may_be_hopeless: whether the master also answers 500 if the request can never succeed.

        Raises:
            Refused: the master refused.
            Away: it was unreachable for longer than that.
        """

        def attempt() -> T:
            try:
                return do(self._open())
            except errors.UnauthenticatedException:
                # Tokens expire, and a restored database does not know them.
                self._client = None
                return do(self._open(anew=True))

        return self._patiently(what, attempt, patience_s, may_be_hopeless)

    def enter(self, user: str, password: str) -> bool:
        """Log in as `user` for all further requests; False, with nothing changed, if the login fails."""
        session = self._patiently(f"the login of {user}", lambda: self._login(user, password), None)
        if session is not None:
            self._client = Determined._from_session(session)
        return session is not None

    def _open(self, *, anew: bool = False) -> Determined:
        """The client, by the token of an earlier login where one is kept: a login takes the master a second.

        Raises:
            Refused: the password is wrong.
        """
        if self._client is None:
            user = self.settings.user
            token = None if anew else self.settings.kept_token()
            session = self._session(user, token) if token else self._login(user, self.settings.password)
            if session is None:
                raise Refused(
                    f"Determined does not let {user} in with the password in {self.settings.password_file}: "
                    "`make provision` sets it."
                )
            if token is None:
                self.settings.keep_token(session.token)
            self._client = Determined._from_session(session)
        return self._client

    def _session(self, user: str, token: str) -> _Patient:
        return _Patient(self._address, user, token, self._certificate, max_retries=0)

    def _unauthenticated(self) -> _PatientLogin:
        return _PatientLogin(self._address, self._certificate, max_retries=0)

    def _login(self, user: str, password: str) -> _Patient | None:
        request = bindings.v1LoginRequest(
            username=user, password=authentication.salt_and_hash(password), isHashed=True
        )
        try:
            answer = bindings.post_Login(self._unauthenticated(), body=request)
        except (errors.UnauthenticatedException, errors.ForbiddenException, errors.NotFoundException):
            return None
        return self._session(user, answer.token)

    def standin(self) -> str | None:
        """What stands in for Determined, in one sentence; None: nothing, it is Determined.

        Raises:
            Away: the master was unreachable for too long.
        """
        answer = self.ask("what it is", lambda client: bindings.get_GetMaster(client._session))
        if answer.branding != BRANDING_OF_STANDIN:
            return None
        return f"The master at {self._address} is a stand-in for Determined {answer.version}, made for tests."

    def _patiently(
        self, what: str, attempt: Callable[[], T], patience_s: float | None, may_be_hopeless: bool = False
    ) -> T:
        patience = self.settings.patience_s if patience_s is None else patience_s
        since: float | None = None
        while True:
            try:
                answer = attempt()
            except (errors.BadRequestException, bindings.APIHttpError, requests.RequestException) as error:
                if not is_away(error, may_be_hopeless):
                    raise refusal(what, error) from error
                now = time.monotonic()
                if since is None:
                    since = now
                    self._say(
                        f"The master at {self._address} does not answer ({first_line(error)}); "
                        f"asking again for up to {patience:.0f} s."
                    )
                if now - since >= patience:
                    raise Away(
                        f"Determined's master at {self._address} has not answered for {now - since:.0f} s "
                        f"({first_line(error)}): see `systemctl status determined-master postgresql` there."
                    ) from error
                time.sleep(min(ASK_AGAIN, patience / 10))
            else:
                if since is not None:
                    self.absences.append(time.monotonic() - since)
                    self._say(f"The master answers again, after {self.absences[-1]:.0f} s.")
                return answer


def is_away(error: Exception, may_be_hopeless: bool) -> bool:
    """Whether a retry may help: the master or its database is unreachable, starting or stopping.

    Args:
        error: what the request failed with.
        may_be_hopeless: whether a 500 from the master can mean that the request will never succeed.
    """
    if isinstance(error, requests.exceptions.SSLError):
        return False
    broken = errors.MasterNotFoundException | requests.RequestException | bindings.APIHttpStreamError
    if isinstance(error, broken):
        return True
    if isinstance(error, errors.NotFoundException):
        return False
    if isinstance(error, errors.APIException):
        if error.status_code == 500 and may_be_hopeless:
            return bool(DATABASE_AWAY.search(error.message))
        return error.status_code >= 500 or error.status_code in STOPPING
    # The SDK turns a timeout into this.
    return type(error) is errors.BadRequestException


def refusal(what: str, error: Exception) -> Refused:
    """The exception for an answer that no retry would change."""
    if isinstance(error, requests.exceptions.SSLError):
        return Refused(
            f"The master's certificate is not the one that this cluster knows ({first_line(error)}): "
            "`make provision` distributes it."
        )
    kind = Gone if isinstance(error, errors.NotFoundException) else Refused
    return kind(f"Determined refuses {what}: {first_line(error)}")


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
