"""The administrator need not be a superuser: CREATEROLE and CREATEDB are enough, as a rented server gives them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Provisioner


async def test_all_of_it_works_without_a_superuser(provisioner: "Provisioner") -> None:
    provisioner.postgres.query("CREATE ROLE chief LOGIN CREATEROLE CREATEDB PASSWORD 'chief'")
    provisioner.postgres.query("CREATE DATABASE mesh OWNER chief")
    provisioner.postgres.write_server(provisioner.files, user="chief", password="chief", dbname="mesh")
    module = await provisioner.prepared()
    access = await module.make(provisioner.claim())
    await module.check(access)
    await module.check(await module.make(provisioner.claim()))
    other = await module.make(provisioner.claim(login="orders@alpha.0a1b2c3d4e5f.2"))
    await provisioner.run(access, "CREATE TABLE kept AS SELECT 7 AS n", options="-c role=none")
    async with provisioner.session(access):
        await module.retire(access.user)
        assert provisioner.sessions_of(access.user) == 0
    assert await provisioner.run(other, "SELECT n, tableowner FROM kept, pg_tables WHERE tablename = 'kept'") == [(7, "orders")]
    assert await module.logins() == (other.user,)
    assert provisioner.postgres.query("SELECT has_database_privilege('public', 'orders', 'CONNECT')") == [(False,)]
