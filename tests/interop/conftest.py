"""What the tests with other SDKs share."""

from collections.abc import Iterator

import pytest

from tests.transports.certificates import Authority


@pytest.fixture(scope="module", autouse=True)
def few_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority, which signs nothing: other SDKs read all of the system's for each client."""
    authority = Authority(tmp_path_factory.mktemp("authorities"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.ca))
        patch.delenv("SSL_CERT_DIR", raising=False)
        yield
