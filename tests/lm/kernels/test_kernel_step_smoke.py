import torch, pytest
from gristmill.lm.data.batch import Batch
from gristmill.lm.models.gpt.network import GPT, GPTConfig
def grads(model): return {n:p.grad.clone() for n,p in model.named_parameters()}
def cos(a,b): return float((a.double()*b.double()).sum()/(a.double().norm()*b.double().norm()+1e-300))
@pytest.mark.parametrize("tie",[True,False])
@pytest.mark.parametrize("qk,kv",[(False,None),(True,2)])
@pytest.mark.parametrize("dtype",["float32","bfloat16"])
def test_same(device,tie,qk,kv,dtype):
    from gristmill.lm.models.gpt.kernel_step import KernelStep
    torch.manual_seed(0)
    c=GPTConfig(vocab_size=300,context_length=32,num_layers=2,num_heads=4,num_kv_heads=kv,d_model=64,tie_embeddings=tie,qk_norm=qk)
    m=GPT(c).to(device)
    with torch.no_grad():
        for p in m.parameters(): p.add_(torch.randn_like(p)*.05)
    x=torch.randint(300,(3,33),device=device); b=Batch(x[:,:-1].contiguous(),x[:,1:].contiguous()); b.targets_BT[0,:5]=-100
    dt=getattr(torch,dtype)
    def plain():
        with torch.autocast(device.type,torch.bfloat16,enabled=dt==torch.bfloat16):
            l=m.loss(b,{})[0]
        (l*.5).backward(); g=grads(m); m.zero_grad(); return l.detach(),g
    pl,pg=plain()
    for f8 in ("off","head","blocks","all"):
        if f8!="off" and dtype=="float32": continue
        k=KernelStep(m,float8=f8,dtype=dt)
        for i in range(3):
            l=k.loss(b); (l*.5).backward(); g=grads(m); m.zero_grad()
            k.after_update()
        print(f8, float(l),float(pl), min((cos(g[n],pg[n]),n) for n in g), [n for n in g if not torch.isfinite(g[n]).all()])
        if f8=="off":
            for n in g: torch.testing.assert_close(g[n],pg[n],atol=1e-6 if dtype=="float32" else 2e-3,rtol=1e-4 if dtype=="float32" else .1,msg=lambda t:n+t)
