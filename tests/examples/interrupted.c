/* pretrain, and a Ctrl-C that comes when all is done: right behind the end of its trainer, by the linker's --wrap. */
#include <minimind.h>
#include <signal.h>

void __real_mm_trainer_free(mm_trainer *trainer);
void __wrap_mm_trainer_free(mm_trainer *trainer);

void __wrap_mm_trainer_free(mm_trainer *trainer)
{
    __real_mm_trainer_free(trainer);
    raise(SIGINT);
}
